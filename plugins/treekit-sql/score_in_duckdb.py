"""Score rows inside DuckDB.

Score a million rows inside DuckDB with a forest of 100 trees, by a function and by a query.

::

    pip install 'treekit-sql[duckdb]'
    python score_in_duckdb.py

The function is treekit's scorer on Arrow arrays. The exported query only needs DuckDB.
Both must give the model's predictions, bit for bit.
"""

import tempfile
import time
from pathlib import Path

import duckdb
from treekit_sql.duckdb import register

import treekit
from treekit.data import DEMO_TARGET, demo_table

ROWS = 1_000_000
FEW = 5_000


def fill(connection):
    """Create a table that repeats the horses, with a row number."""
    connection.execute("CREATE TABLE horses AS FROM read_csv(?)", [str(demo_table())])
    count = connection.execute("SELECT count(*) FROM horses").fetchall()[0][0]
    connection.execute(
        "CREATE TABLE rows AS SELECT n AS id, horses.* EXCLUDE (place) "
        "FROM range(?) AS numbers(n) "
        "JOIN (SELECT *, row_number() OVER () - 1 AS place FROM horses) AS horses "
        "ON place = n % ?",
        [ROWS, count],
    )
    return count


def main():
    model = treekit.train(demo_table(), DEMO_TARGET, ensemble="forest", trees=100, seed=0)
    connection = duckdb.connect()
    count = fill(connection)
    label = register(connection, model, "lesion")
    share = register(connection, model, "lesion_shares", answer="probability")

    began = time.perf_counter()
    query = f"SELECT id, {label} AS prediction FROM rows ORDER BY id"  # noqa: S608 - quoted names
    scored = connection.execute(query).fetchnumpy()
    seconds = time.perf_counter() - began
    known = model.predict(demo_table())
    assert (scored["prediction"] == known[scored["id"] % count]).all()
    print(f"the function: {ROWS:,} rows in {seconds:.1f} s")

    with tempfile.TemporaryDirectory() as folder:
        (path,) = treekit.export(
            model, "sql", Path(folder) / "lesion.sql", dialect="duckdb", table="few", keys="id"
        )
        connection.execute(f"CREATE TABLE few AS FROM rows WHERE id < {FEW}")
        began = time.perf_counter()
        answers = connection.execute(path.read_text(encoding="utf-8")).fetchall()
        seconds = time.perf_counter() - began
    print(f"the query:    {FEW:,} rows in {seconds:.1f} s")
    query = f"SELECT id, {label}, {share} FROM few"  # noqa: S608
    shares = connection.execute(query).fetchall()
    assert sorted(answers) == sorted((row, name, *own) for row, name, own in shares)
    assert [own for _, _, own in sorted(shares)[:count]] == (
        model.predict_proba(demo_table()).tolist()
    )
    print("predictions of both equal the model's, bit for bit")
    for name in ("lesion", "lesion_shares"):  # avoids errors of DuckDB at exit
        connection.remove_function(name)
    connection.close()


if __name__ == "__main__":
    main()
