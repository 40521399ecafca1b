"""``treekit serve``: models behind the Open Inference Protocol v2."""

from __future__ import annotations

import inspect
from typing import Any

import click

__all__ = ["serve_command"]

_EXAMPLES = """\b
Examples:
  treekit serve iris.treekit                       the page: http://127.0.0.1:8080/
  treekit serve models/ --workers 2 --control      a folder; clients load and unload
  treekit serve models/ --host 0.0.0.0 --token-file token \\
      --tls-cert cert.pem --tls-key key.pem        for other machines

\b
Ask it by rows, with every column, and read the rule that answered ("model" is for several):
  curl http://127.0.0.1:8080/predict -d '{"model": "iris", "rows": [{"petal_length": 1.4,
      "petal_width": null}], "outputs": ["label", "probabilities", "rule"]}'

\b
Ask it by the Open Inference Protocol v2 (/openapi.json describes all paths, /metrics is for
Prometheus; "outputs" also gives leaf, rule, contributions and bias):
  curl http://127.0.0.1:8080/v2/models/iris/infer -d '{"inputs": [{"name": "input",
      "shape": [1, 2], "datatype": "FP32", "data": [1.4, 0.2]}]}'
"""

_CLOSE = """\b
Exit codes: 0, ended by Ctrl-C or SIGTERM after all that had begun was answered; 2, it
cannot start, and says why; 130 or 143, a second signal ended it at once, or one came
before it listened.
"""


def _milliseconds(_: click.Context, __: click.Parameter, value: float) -> float:
    return value / 1000


@click.command(
    "serve",
    short_help="Serve models over HTTP and gRPC, with a page.",
    epilog=_CLOSE,
)
@click.argument("sources", metavar="MODEL_OR_FOLDER...", nargs=-1, required=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Of HTTP; 0: any that is free.",
)
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Processes that share the port; each holds all models.",
)
@click.option(
    "--grpc-port",
    metavar="N",
    type=click.IntRange(0, 65535),
    help="Serve gRPC here, too; 0: any port that is free.",
)
@click.option(
    "--allow-host",
    "allow_hosts",
    metavar="NAME",
    multiple=True,
    help="A name that clients may call this server by, besides its address; '*': any.",
)
@click.option(
    "--allow-origin",
    "allow_origins",
    metavar="ORIGIN",
    multiple=True,
    help="A site whose pages may ask, such as https://example.org; '*': any.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="Answer only requests with the bearer token that is the file's one line.",
)
@click.option("--tls-cert", metavar="FILE", help="Certificate chain in PEM: serve https.")
@click.option("--tls-key", metavar="FILE", help="Its key, not encrypted.")
@click.option("--control", is_flag=True, help="Let clients load and unload models.")
@click.option(
    "--reload",
    "reload_seconds",
    metavar="SECONDS",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="How often to look whether model files changed; 0: never.",
)
@click.option(
    "--batch-rows",
    metavar="N",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Answer small requests together, up to so many rows; 0: each by itself.",
)
@click.option(
    "--batch-delay",
    metavar="MS",
    type=click.FloatRange(0, 1000),
    default=2.0,
    show_default=True,
    callback=_milliseconds,
    help="Milliseconds that a small request waits for others at most.",
)
@click.option(
    "--max-body", metavar="BYTES", type=click.IntRange(1), help="Of a request.  [default: 16777216]"
)
@click.option(
    "--max-rows", metavar="N", type=click.IntRange(1), help="Of a request.  [default: 100000]"
)
@click.option(
    "--max-explained",
    metavar="N",
    type=click.IntRange(1),
    help="Rows of a request that asks for rules or contributions.  [default: 100]",
)
@click.option(
    "--max-seconds",
    metavar="S",
    type=click.FloatRange(0, min_open=True),
    help="For a request to arrive, again for its answer, and for the last ones at the end.  "
    "[default: 30]",
)
@click.option(
    "--max-requests", metavar="N", type=click.IntRange(1), help="At once, a worker.  [default: 256]"
)
@click.option(
    "--log",
    type=click.Choice(["text", "json", "quiet"]),
    default="text",
    show_default=True,
    help="Lines on stderr; quiet: of what befalls the server, and not of requests.",
)
def serve_command(sources: tuple[str, ...], **options: Any) -> None:
    """Serve .treekit and .onnx files, and folders of them, until Ctrl-C or SIGTERM.

    A folder holds NAME.treekit and NAME.onnx, or NAME/VERSION/model.treekit as Triton has
    it.  A changed file replaces its model without a lost answer; one that cannot be used
    leaves the model before it in service, and the log says why.
    """
    from treekit.serve.process.run import serve

    serve(settings_of(sources, options))


def settings_of(sources: tuple[str, ...], options: dict[str, Any]) -> Any:
    """The settings that a command line asks for; what it leaves out is the settings' own."""
    from treekit.serve.settings import Limits, ServeSettings

    bounds = {
        "max_body": "body_bytes",
        "max_rows": "rows",
        "max_explained": "explained_rows",
        "max_seconds": "seconds",
        "max_requests": "requests",
    }
    given = {name: options.pop(flag) for flag, name in bounds.items()}
    limits = Limits(**{name: value for name, value in given.items() if value is not None})
    return ServeSettings(sources=sources, limits=limits, **options)


serve_command.help = f"{inspect.cleandoc(serve_command.help or '')}\n\n{_EXAMPLES}"
