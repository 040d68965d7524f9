"""The console's routes. They show a caller what the API would show. Every action on a page is a request
to the API itself, except for the playground's calls, which otherwise go through the gateway's own API,
and for forms that create something, which call the same functions as the API."""

from fastapi import APIRouter

from hocket.admin.console.asset_route import serve_asset
from hocket.admin.console.creation import keys as new_key
from hocket.admin.console.creation import schedules as new_schedule
from hocket.admin.console.creation import webhooks as new_webhook
from hocket.admin.console.pages import (
    approvals,
    bulk,
    flow,
    live,
    models,
    money,
    pipeline_diff,
    pipelines,
    provider_sign_in,
    runs,
    schedules,
    sign_in,
    system,
    webhooks,
)
from hocket.admin.console.playground import page as playground
from hocket.admin.console.rendering import ASSETS
from hocket.admin.console.run import call as run_call
from hocket.admin.console.run import compare as run_compare
from hocket.admin.console.run import data as run_data
from hocket.admin.console.run import page as run_page
from hocket.admin.console.run import step as run_step

PAGES = (
    sign_in,
    provider_sign_in,
    live,
    runs,
    run_page,
    run_data,
    run_step,
    run_call,
    bulk,
    run_compare,
    pipeline_diff,
    approvals,
    flow,
    schedules,
    new_schedule,
    webhooks,
    new_webhook,
    pipelines,
    money,
    models,
    playground,
    system,
    new_key,
)

assets = APIRouter(include_in_schema=False)
assets.add_route(ASSETS + "{digest}/{name:path}", serve_asset, methods=["GET"])
ROUTERS = (assets, *(page.router for page in PAGES))
