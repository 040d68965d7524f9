"""Embeds a text as its length and the number of its capitals."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        vectors = [[len(t), sum(c.isupper() for c in t.decode())] for (t,) in texts]
        tensor = pb_utils.Tensor("VECTOR", np.array(vectors, dtype=np.float32))
        return pb_utils.InferenceResponse([tensor])
