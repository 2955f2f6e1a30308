#!/usr/bin/env python3
"""A job with Python's standard library alone that writes a report. Under

    kubectl fencedlease run report-writer -n reports -- examples/python/report.py daily "all is well"

it starts when the lease is held, every request of it carries the token of the term, as the kubeconfig that it is given says,
and it is ended when the lease is lost.
"""

import base64
import json
import os
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request


class Cluster:
    """The API server, and how to reach it, of the current kubeconfig."""

    def __init__(self):
        view = subprocess.run(
            ["kubectl", "config", "view", "--minify", "--flatten", "--raw", "-o", "json"],
            check=True, stdout=subprocess.PIPE,
        )
        config = json.loads(view.stdout)
        cluster, self.user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server = cluster["server"].rstrip("/")
        ca = cluster.get("certificate-authority-data")
        self.tls = ssl.create_default_context(cadata=base64.b64decode(ca).decode() if ca else None)
        if "client-certificate-data" in self.user:
            # The module reads certificates of clients from files only.
            with tempfile.NamedTemporaryFile() as pair:
                for part in ("client-certificate-data", "client-key-data"):
                    pair.write(base64.b64decode(self.user[part]) + b"\n")
                pair.flush()
                self.tls.load_cert_chain(pair.name)

    def headers(self):
        """The headers of one request. A token file is read each time: its content is renewed."""
        headers = {}
        if "tokenFile" in self.user:
            with open(self.user["tokenFile"], encoding="ascii") as file:
                headers["Authorization"] = "Bearer " + file.read().strip()
        elif "token" in self.user:
            headers["Authorization"] = "Bearer " + self.user["token"]
        if "as" in self.user:
            headers["Impersonate-User"] = self.user["as"]
        for key, values in self.user.get("as-user-extra", {}).items():
            headers["Impersonate-Extra-" + urllib.parse.quote(key, safe="")] = values[0]
        return headers

    def apply(self, path, manager, body):
        """Applies an object by server-side apply, whose documents may be JSON."""
        query = urllib.parse.urlencode({"fieldManager": manager, "force": "true"})
        request = urllib.request.Request(
            f"{self.server}{path}?{query}", data=json.dumps(body).encode(), method="PATCH",
            headers={**self.headers(), "Content-Type": "application/apply-patch+yaml", "Accept": "application/json"},
        )
        with urllib.request.urlopen(request, context=self.tls) as response:
            return json.load(response)


def main():
    name, text = sys.argv[1:3]
    print(f"writing report {name} under {os.environ['FENCEDLEASE_TOKEN']}")
    report = {
        "apiVersion": "example.com/v1", "kind": "Report",
        "metadata": {"name": name, "namespace": "reports"},
        "spec": {"value": text},
    }
    try:
        Cluster().apply(f"/apis/example.com/v1/namespaces/reports/reports/{name}", "report-job", report)
    except urllib.error.HTTPError as error:
        status = json.load(error)
        # Reason Fenced: the term is over, and the write was not applied.
        sys.exit(f"not written: {error.code} {status.get('reason')}: {status.get('message')}")


if __name__ == "__main__":
    main()
