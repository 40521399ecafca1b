"""The objects of an inference request, as the protocol's JSON has them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from treekit.serve.errors import InvalidRequestError, shown

__all__ = ["InferRequest", "InputRequest", "OutputRequest", "Parameters"]

Parameters = dict[str, bool | int | float | str | None]

_ELSEWHERE = ("classification", "shared_memory_region", "shared_memory_byte_size")
"""Parameters of extensions that would change the answer and are not here."""


class InputRequest(msgspec.Struct):
    """``$request_input``; `data` is read when its datatype is known.

    Where a request has NaN or Infinity, `data` is a list (see `treekit.serve.protocol.wire`).
    """

    name: str
    shape: list[int]
    datatype: str
    data: msgspec.Raw = msgspec.Raw()
    parameters: Parameters = {}


class OutputRequest(msgspec.Struct):
    """``$request_output``."""

    name: str
    parameters: Parameters = {}


class InferRequest(msgspec.Struct):
    """``$inference_request``."""

    inputs: list[InputRequest]
    id: str | None = None
    outputs: list[OutputRequest] | None = None
    parameters: Parameters = {}

    @property
    def names(self) -> list[str] | None:
        """The outputs that are asked for, or None."""
        return [output.name for output in self.outputs] if self.outputs else None

    @property
    def quotes(self) -> int:
        """How many quotation marks the JSON of the request has, if nothing else is in it.

        Every member that was read has so many; one more in the text is a member that was
        not, because it is unknown or there twice (or it is within a text, or before a null).
        """
        marks = 2 + 2 * (self.outputs is not None) + 4 * (self.id is not None)
        for given in self.inputs:
            marks += 10 + 2 * bool(given.data)
            if given.datatype == "BYTES":  # others have none in their data, or are refused
                marks += bytes(given.data).count(b'"')
        marks += 4 * len(self.outputs or ())
        for _, parameters in self._parameters():
            texts = sum(isinstance(value, str) for value in parameters.values())
            marks += 2 + 2 * len(parameters) + 2 * texts
        return marks

    def check(self) -> None:
        """Refuse parameters that ask for what this server does not do.

        Raises
        ------
        InvalidRequestError
            Names the parameter, and whose it is.
        """
        for of, parameters in self._parameters():
            for name in _ELSEWHERE:
                if name in parameters:
                    raise InvalidRequestError(
                        f"{of} has the parameter {name!r}, of an extension that this server does "
                        "not have; leave it out"
                    )
            for name in ("binary_data", "binary_data_output"):
                if not isinstance(parameters.get(name, False), bool):
                    raise InvalidRequestError(
                        f"{of} has the parameter {name!r} = {shown(parameters[name])}; it is to "
                        "be true or false"
                    )

    def binary(self, name: str) -> bool:
        """Whether the output of this name is to come as bytes."""
        for output in self.outputs or ():
            if output.name == name and "binary_data" in output.parameters:
                return output.parameters["binary_data"] is True
        return self.parameters.get("binary_data_output") is True

    def _parameters(self) -> Iterator[tuple[str, Parameters]]:
        """All parameters that are given, each with the words for whose they are."""
        if self.parameters:
            yield "the request", self.parameters
        for given in self.inputs:
            if given.parameters:
                yield f"input {shown(given.name)}", given.parameters
        for output in self.outputs or ():
            if output.parameters:
                yield f"output {shown(output.name)}", output.parameters
