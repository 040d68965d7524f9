"""The pages of the console, each with something to show in the scene."""

import re

from hocket.admin.console.pages.system import Part
from hocket.admin.console.run.views import View
from support.administration.console_scene import ATTACKED, OTHER, SHORT
from support.administration.webhook_rig import MESSAGE

PAGES: dict[str, tuple[str, ...]] = {
    "/runs": ("/runs",),
    "/runs/{run_id}": tuple(
        f"/runs/{SHORT}{f'?view={view}' if view is not View.TIMELINE else ''}" for view in View
    ),
    "/runs/{run_id}/steps/{step}": (f"/runs/{SHORT}/steps/draft",),
    "/runs/{run_id}/calls/{call_id}": (f"/runs/{SHORT}/calls/c0",),
    "/calls/{call_id}": ("/calls/c0",),
    "/compare": (f"/compare?a={SHORT}&b={OTHER}",),
    "/approvals": ("/approvals",),
    "/flow": ("/flow",),
    "/bulk": ("/bulk",),
    "/schedules": ("/schedules",),
    "/schedules/{name}": ("/schedules/nightly", "/schedules/mornings"),
    "/schedules/{name}/edit": ("/schedules/nightly/edit",),
    "/new/schedule": ("/new/schedule",),
    "/new/webhook": ("/new/webhook",),
    "/new/key": ("/new/key",),
    "/webhooks": ("/webhooks",),
    "/webhooks/{name}": ("/webhooks/ops", "/webhooks/pager"),
    "/webhooks/{name}/{message_id}": (f"/webhooks/ops/{MESSAGE}",),
    "/pipelines": ("/pipelines",),
    "/pipelines/{name}": ("/pipelines/research",),
    "/pipelines/{name}/diff": ("/pipelines/research/diff?a=1&b=2",),
    "/editor": ("/editor?name=research",),
    "/money": ("/money",),
    "/models": ("/models",),
    "/playground": ("/playground",),
    "/system": tuple(f"/system{f'?view={part}' if part != Part.HEALTH else ''}" for part in Part),
    "/tenants": ("/tenants",),
}
"""The pages by their route, relative to the console's path."""
EVERY_PAGE = tuple(path for paths in PAGES.values() for path in paths)
NO_PAGES = re.compile(r"/live/|\.json$|/assets/|/find$|/sign-in|^$")
"""Routes that answer with data, part of a page or a redirect; the sign-in page has its own tests."""


def attacked(path: str) -> str:
    """Return the path of the run with hostile texts in place of the ordinary run's."""
    return path.replace(SHORT, ATTACKED).replace("/calls/c0", "/calls/h0")
