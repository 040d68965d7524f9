"""Returns its text in capitals; a token is a word."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        loud = np.char.upper(np.char.decode(texts.astype(np.bytes_), "utf-8")).astype(object)
        words = np.array([[len(row[0].split())] for row in texts], dtype=np.int32)
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("LOUD", loud),
                pb_utils.Tensor("TOKENS_IN", words),
                pb_utils.Tensor("TOKENS_OUT", words),
            ]
        )
