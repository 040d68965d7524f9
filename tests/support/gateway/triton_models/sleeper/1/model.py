"""Sleeps until it is cancelled, and creates the files `began` and `cancelled` in the given folder."""

import pathlib
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.sleep(request) for request in requests]

    def sleep(self, request):
        text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[0].decode()
        folder = pathlib.Path(text)
        (folder / "began").touch()
        while not request.is_cancelled():
            time.sleep(0.005)
        (folder / "cancelled").touch()
        cancelled = pb_utils.TritonError("cancelled", pb_utils.TritonError.CANCELLED)
        return pb_utils.InferenceResponse(error=cancelled)
