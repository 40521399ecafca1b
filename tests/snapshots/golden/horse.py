"""Predict the column surgical_lesion of one row: no, yes.
Cells are read by column name; None is missing, and so is an unseen category.
Made from treekit model 6af06d097288; `treekit verify` checks this file against the model.
Form: readable; the tree has 7 nodes; Python 3.7 or newer. In comments: share of a leaf's training rows in its class.
"""


def predict(row: dict) -> str:
    pain = row["pain"]
    abdomen = row["abdomen"]
    if abdomen in {"firm feces in large intestine", "normal", "other"}:
        return "no"  # share 0.757
    if abdomen in {"distended large intestine", "distended small intestine"}:
        return "yes"  # share 0.854
    if pain == "alert no pain":
        return "no"  # share 0.929
    return "yes"  # share 0.651
