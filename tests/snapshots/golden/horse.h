/* Predict the column surgical_lesion of a row.
 *
 *     struct Model_row row;  a field for each column that the tree tests, see below
 *     row.pain = MODEL_PAIN_MISSING;
 *     enum Model_class label = Model_predict(&row);
 * Classes: no, yes; for probabilities export with form=full.
 * Made from treekit model 6af06d097288; `treekit verify` checks this file against the model.
 * Form: readable; the tree has 7 nodes.
 * Flash: up to about 92 bytes of a program for a Cortex-M0, 82 for a Cortex-M4 (gcc at -Os),
 * besides the compiler's functions for floating point.
 */
#ifndef MODEL_H
#define MODEL_H

enum Model_class { MODEL_NO, MODEL_YES };

/* MODEL_PAIN_MISSING stands for missing and unseen categories. */
enum Model_pain {
    MODEL_PAIN_MISSING = -1, MODEL_PAIN_ALERT_NO_PAIN, MODEL_PAIN_CONTINUOUS_SEVERE_PAIN,
    MODEL_PAIN_DEPRESSED, MODEL_PAIN_INTERMITTENT_MILD_PAIN, MODEL_PAIN_INTERMITTENT_SEVERE_PAIN
};

/* MODEL_ABDOMEN_MISSING stands for missing and unseen categories. */
enum Model_abdomen {
    MODEL_ABDOMEN_MISSING = -1, MODEL_ABDOMEN_DISTENDED_LARGE_INTESTINE,
    MODEL_ABDOMEN_DISTENDED_SMALL_INTESTINE, MODEL_ABDOMEN_FIRM_FECES_IN_LARGE_INTESTINE,
    MODEL_ABDOMEN_NORMAL, MODEL_ABDOMEN_OTHER
};

struct Model_row {
    enum Model_pain pain; /* column 9: pain */
    enum Model_abdomen abdomen; /* column 16: abdomen */
};

#ifdef __cplusplus
extern "C"
#endif
enum Model_class Model_predict(const struct Model_row *row);

#endif
