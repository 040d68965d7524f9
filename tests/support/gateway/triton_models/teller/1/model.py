"""Returns a text word by word, as several answers to one request."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            self.tell(request)

    def tell(self, request):
        sender = request.get_response_sender()
        text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[0].decode()
        for word in text.split(" "):
            tensor = pb_utils.Tensor("WORD", np.array([f"{word} "], dtype=object))
            sender.send(pb_utils.InferenceResponse([tensor]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
