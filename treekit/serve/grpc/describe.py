"""The protocol's description as bytes: ``python -m treekit.serve.grpc.describe`` writes them.

For who alters ``inference.proto``; a server reads the bytes and needs no compiler.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from treekit.errors import MissingExtraError
from treekit.serve.grpc.messages import DESCRIPTION

__all__ = [
    "described",
]


def described() -> bytes:
    """What ``inference.proto`` says: a serialized ``FileDescriptorProto``, without comments.

    Raises
    ------
    MissingExtraError
        Without grpcio-tools.
    ValueError
        If the compiler refuses the file; it says why on stderr.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    try:
        from grpc_tools import protoc
    except ImportError as error:
        raise MissingExtraError("grpcio-tools", "test") from error
    source = DESCRIPTION.with_suffix(".proto")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set.binpb"
        given = ["protoc", f"-I{source.parent}", f"--descriptor_set_out={out}", source.name]
        if protoc.main(given):
            raise ValueError(f"the compiler refuses {source.name}")
        (file,) = FileDescriptorSet.FromString(out.read_bytes()).file
    text: bytes = file.SerializeToString(deterministic=True)
    return text


if __name__ == "__main__":
    DESCRIPTION.write_bytes(described())
