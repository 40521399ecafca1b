//! Predict the column surgical_lesion of one row: no, yes.
//!
//! Made from treekit model 6af06d097288; `treekit verify` checks this file against the model.
//! A share in a comment is that of the predicted class in the training rows of a leaf.
//! Form: readable; the tree has 7 nodes.

/// The tested columns; any other text is a missing or unseen category.
pub struct Row<'a> {
    pub pain: &'a str, // column 9: pain
    pub abdomen: &'a str, // column 16: abdomen
}

/// Return the label of a row.
pub fn predict(row: &Row) -> &'static str {
    if matches!(row.abdomen, "firm feces in large intestine" | "normal" | "other") {
        return "no"; // share 0.757
    }
    if matches!(row.abdomen, "distended large intestine" | "distended small intestine") {
        return "yes"; // share 0.854
    }
    if row.pain == "alert no pain" {
        return "no"; // share 0.929
    }
    "yes" // share 0.651
}
