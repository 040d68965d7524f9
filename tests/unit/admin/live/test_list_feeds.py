"""What a follower of an open list is sent."""

from hocket.admin.live.list_feeds import LEFT_OUT, MAX_QUEUED, Follower


async def test_a_follower_that_reads_too_slowly_is_told_that_changes_were_left_out() -> None:
    follower = Follower()
    for number in range(MAX_QUEUED):
        follower.put(b"%d" % number)
    assert await follower.next(1.0) == b"0123"
    for number in range(MAX_QUEUED + 1):
        follower.put(b"%d" % number)
    assert await follower.next(1.0) == LEFT_OUT + b"1234"
    follower.put(b"5")
    assert await follower.next(1.0) == b"5"
