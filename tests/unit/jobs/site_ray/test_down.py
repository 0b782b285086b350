"""`equipoise down` where there is nothing to end, and which jobs it stops before it ends a Ray."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from jobs.site_ray.down import main, stop_jobs
from jobs.site_ray.ray_dashboard import RayDashboard


def test_a_folder_without_a_ray_is_told_and_left_alone(tmp_path, capsys):
    assert main(["--results", str(tmp_path)]) == 0
    assert "no Ray runs that equipoise up started" in capsys.readouterr().out
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_is_not_there_is_refused(tmp_path, capsys):
    assert main(["--results", str(tmp_path / "none")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_a_job_that_cannot_be_stopped_does_not_keep_the_others_from_their_checkpoints(capsys):
    active = ["gone", "training"]

    class Jobs(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(200, json.dumps([{"submission_id": job, "status": "RUNNING"} for job in active]))

        def do_POST(self):
            job = self.path.split("/")[3]
            active.remove(job)
            self.answer(404 if job == "gone" else 200, "{}")

        def answer(self, status, text):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Jobs) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stop_jobs(RayDashboard(f"http://127.0.0.1:{server.server_port}"))
        server.shutdown()
    assert active == [] and "stopping 2 jobs: gone, training" in capsys.readouterr().out
