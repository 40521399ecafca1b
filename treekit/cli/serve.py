"""``treekit serve``: serve models by the Open Inference Protocol v2."""

from __future__ import annotations

import inspect
from typing import Any

import click

from treekit.cli.options import number_option

_EXAMPLES = """\b
Examples:
  treekit serve iris.treekit                       web page: http://127.0.0.1:8080/
  treekit serve models/ --control                  a folder; clients may load and unload models
  treekit serve models/ --host 0.0.0.0 --token-file token \\
      --tls-cert cert.pem --tls-key key.pem        for other machines

\b
Predict rows, and get the rule for each ("model" is needed only if there are several):
  curl http://127.0.0.1:8080/predict -d '{"model": "iris", "rows": [{"petal_length": 1.4,
      "petal_width": null}], "outputs": ["label", "probabilities", "rule"]}'

\b
Predict by the Open Inference Protocol v2 (/openapi.json describes all paths, /metrics is for
Prometheus; "outputs" may also name leaf, rule, contributions and bias):
  curl http://127.0.0.1:8080/v2/models/iris/infer -d '{"inputs": [{"name": "input",
      "shape": [1, 2], "datatype": "FP32", "data": [1.4, 0.2]}]}'
"""

_EXIT_CODES = """\b
Exit codes: 0, stopped by Ctrl-C or SIGTERM after answering all requests in progress, or after
--max-seconds; 2, the server cannot start, for the reason printed; 130 or 143, stopped at once by
a second signal, or by a signal before it was listening.
"""


@click.command(
    "serve",
    short_help="Serve models over HTTP and gRPC, with a web page.",
    epilog=_EXIT_CODES,
)
@click.argument("sources", metavar="MODEL_OR_FOLDER...", nargs=-1, required=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@number_option("--port", "HTTP port; 0 picks a free one.", 8080, most=65535)
@number_option(
    "--workers",
    "Number of processes that share the port; each loads all models.",
    1,
    least=1,
    most=256,
)
@number_option("--grpc-port", "Also serve gRPC on this port; 0 picks a free one.", most=65535)
@click.option(
    *("--allow-host", "allow_hosts"),
    metavar="NAME",
    multiple=True,
    help="Host name that clients may use besides the address; '*' allows any.",
)
@click.option(
    *("--allow-origin", "allow_origins"),
    metavar="ORIGIN",
    multiple=True,
    help="Site whose pages may send requests, such as https://example.org; '*' allows any.",
)
@click.option(
    "--token-file", metavar="FILE", help="Require the bearer token in this file (a single line)."
)
@click.option("--tls-cert", metavar="FILE", help="Certificate chain (PEM), to serve https.")
@click.option("--tls-key", metavar="FILE", help="Unencrypted private key of the certificate.")
@click.option(
    "--control", is_flag=True, help="Allow clients to load and unload models; needs one worker."
)
@click.option(
    *("--reload", "reload_seconds"),
    metavar="SECONDS",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="Interval of checks for changed model files; 0 disables them.",
)
@number_option(
    "--max-body", "Maximum size of a request body.  [default: 16777216]", least=1, metavar="BYTES"
)
@number_option("--max-rows", "Maximum number of rows in a request.  [default: 100000]", least=1)
@number_option(
    "--max-explained",
    "Maximum number of rows in a request for rules or contributions.  [default: 100]",
    least=1,
)
@click.option(
    "--max-seconds",
    metavar="S",
    type=click.FloatRange(0, min_open=True),
    help="Time limit for receiving a request, for answering it, and for requests in progress at "
    "shutdown; the server ends at most 5 s later, even if work is still running.  [default: 30]",
)
@number_option(
    "--max-requests", "Maximum number of concurrent requests per worker.  [default: 256]", least=1
)
@click.option(
    "--log",
    type=click.Choice(["text", "json", "quiet"]),
    default="text",
    show_default=True,
    help="Log format on stderr; quiet logs server events but no requests.",
)
def serve_command(sources: tuple[str, ...], **options: Any) -> None:
    """Serve .treekit files, or folders of them, until Ctrl-C or SIGTERM.

    A folder contains NAME.treekit, or NAME/VERSION/model.treekit as in a Triton model
    repository.  Changed files are reloaded without dropping requests; if a
    file cannot be loaded, the previous version stays in service, in new workers too, and the
    reason is logged.
    """
    from treekit.serve.process.run import serve

    serve(make_serve_settings(sources, options))


def make_serve_settings(sources: tuple[str, ...], options: dict[str, Any]) -> Any:
    """Return the server settings for command line options, with defaults for those not given."""
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
