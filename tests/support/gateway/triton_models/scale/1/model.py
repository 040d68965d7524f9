"""Multiplies a matrix."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        matrix = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        factor = pb_utils.get_input_tensor_by_name(request, "FACTOR").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", matrix * factor[0])])
