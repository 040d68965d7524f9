"""Documents in a prompt: in the last user message, under their markers."""

from hocket.gateway.core.calls.prompt import chat_messages, rendered
from hocket.schemas.messages import ChatMessage, Document

PASSAGE = Document(id="P1", title="Tides", source="tides.md", text="Twice a day.")
TABLE = Document(
    id="S1", kind="table", columns=("port", "m"), rows=(("Brest", 6.1), ("Kiel", None))
)


def test_documents_are_written_into_the_last_user_message() -> None:
    sent = chat_messages(
        (
            ChatMessage(role="user", content="Hi"),
            ChatMessage(role="assistant", content="Yes?"),
            ChatMessage(role="user", content="How often?"),
        ),
        (PASSAGE,),
    )
    assert [m["content"] for m in sent] == [
        "Hi",
        "Yes?",
        "How often?\n\nSources:\n\n[P1] Tides (tides.md)\nTwice a day.",
    ]


def test_documents_without_a_user_message_become_one() -> None:
    sent = chat_messages((ChatMessage(role="system", content="Be brief."),), (PASSAGE,))
    assert [m["role"] for m in sent] == ["system", "user"]


def test_a_table_keeps_its_columns_and_shows_missing_values() -> None:
    assert rendered(TABLE) == "[S1]\nport | m\nBrest | 6.1\nKiel | NULL"


def test_messages_without_documents_stay_as_they_are() -> None:
    sent = chat_messages((ChatMessage(role="user", content="Hi"),), ())
    assert sent == [{"role": "user", "content": "Hi"}]
