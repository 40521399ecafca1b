"""Ask a model on a server about one row: python ask_server.py URL NAME CELL..."""

import json
import sys
import urllib.request

url, name, *cells = sys.argv[1:]
row = {"name": "input", "datatype": "BYTES", "shape": [1, len(cells)], "data": cells}
asked = json.dumps({"inputs": [row]}).encode()
with urllib.request.urlopen(f"{url}/v2/models/{name}/infer", asked, timeout=30) as answer:
    for output in json.load(answer)["outputs"]:
        print(output["name"], *output["data"], sep="\t")
