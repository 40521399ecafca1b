"""Score one row with a model on a server: python ask_server.py URL NAME CELL..."""

import json
import sys
import urllib.request

url, name, *cells = sys.argv[1:]
row = {"name": "input", "datatype": "BYTES", "shape": [1, len(cells)], "data": cells}
body = json.dumps({"inputs": [row]}).encode()
with urllib.request.urlopen(f"{url}/v2/models/{name}/infer", body, timeout=30) as response:
    for output in json.load(response)["outputs"]:
        print(output["name"], *output["data"], sep="\t")
