"""Starts and stops replicas of model servers, as the gateway's `warm:` webhooks ask: each is a
deployment of one pod or none. `POST /start?replica=writer-0` scales the deployment `writer-0` to one,
`/stop` to none. Only deployments of SCALED are touched; who asks must show SCALER_TOKEN. Python is all
it needs.
"""

import hmac
import json
import os
import re
import ssl
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

ACCOUNT = Path(os.environ.get("ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
API = os.environ.get("KUBERNETES_API", "https://kubernetes.default.svc")
PODS = {"/start": 1, "/stop": 0}
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
TIMEOUT_S = 10.0


def scale(deployment: str, pods: int) -> tuple[int, str]:
    """Ask the API server for so many pods of a deployment; return a status (202: it starts) and why."""
    space = (ACCOUNT / "namespace").read_text().strip()
    path = f"/apis/apps/v1/namespaces/{space}/deployments/{deployment}/scale"
    request = urllib.request.Request(
        API + path,
        data=json.dumps({"spec": {"replicas": pods}}).encode(),
        method="PATCH",
        headers={
            "Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}",
            "Content-Type": "application/merge-patch+json",
        },
    )
    trust = None
    if API.startswith("https:"):
        trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trust):
            return (202 if pods else 200), f"{deployment}: {pods}"
    except urllib.error.HTTPError as error:
        return 502, f"the API server says {error.code}: {error.read(400).decode(errors='replace')}"
    except OSError as error:
        return 502, f"the API server does not answer: {error}"


class Door(BaseHTTPRequestHandler):
    """What gateways ask."""

    timeout = TIMEOUT_S

    def do_POST(self) -> None:
        """Start or stop a replica."""
        asked = urlsplit(self.path)
        replica = parse_qs(asked.query).get("replica", [""])[0]
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {os.environ['SCALER_TOKEN']}".encode()):
            self._say(401, "the token is another one")
        elif asked.path not in PODS or not NAME.fullmatch(replica):
            self._say(404, "POST /start?replica=NAME or /stop?replica=NAME")
        elif replica not in os.environ["SCALED"].split(","):
            self._say(403, f"{replica} is not one of SCALED")
        else:
            self._say(*scale(replica, PODS[asked.path]))

    def do_GET(self) -> None:
        """Tell a probe that it is there."""
        self._say(200 if self.path == "/healthz" else 404, "")

    def _say(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("", int(os.environ.get("PORT", "8080"))), Door).serve_forever()
