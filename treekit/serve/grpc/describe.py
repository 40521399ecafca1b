"""Compile ``inference.proto``: ``python -m treekit.serve.grpc.describe``.

Only needed after a change of ``inference.proto``; servers read the compiled description.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from treekit.errors import MissingExtraError
from treekit.serve.grpc.messages import DESCRIPTION_FILE


def compile_description() -> bytes:
    """Compile ``inference.proto`` to a serialized ``FileDescriptorProto`` without comments.

    Raises
    ------
    MissingExtraError
        If grpcio-tools is not installed.
    ValueError
        If the compilation fails; the reason is printed on stderr.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    try:
        from grpc_tools import protoc
    except ImportError as error:
        raise MissingExtraError("grpcio-tools", "test") from error
    source = DESCRIPTION_FILE.with_suffix(".proto")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set.binpb"
        given = ["protoc", f"-I{source.parent}", f"--descriptor_set_out={out}", source.name]
        if protoc.main(given):
            raise ValueError(f"compilation of {source.name} failed")
        (file,) = FileDescriptorSet.FromString(out.read_bytes()).file
    text: bytes = file.SerializeToString(deterministic=True)
    return text


if __name__ == "__main__":
    DESCRIPTION_FILE.write_bytes(compile_description())
