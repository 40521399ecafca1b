#include "Model.h"

/* share: the part of a leaf's training rows that are in the predicted class */
enum Model_class Model_predict(const struct Model_row *row)
{
    if (row->abdomen == MODEL_ABDOMEN_FIRM_FECES_IN_LARGE_INTESTINE ||
        row->abdomen == MODEL_ABDOMEN_NORMAL ||
        row->abdomen == MODEL_ABDOMEN_OTHER) {
        return MODEL_NO; /* share 0.757 */
    }
    if (row->abdomen == MODEL_ABDOMEN_DISTENDED_LARGE_INTESTINE ||
        row->abdomen == MODEL_ABDOMEN_DISTENDED_SMALL_INTESTINE) {
        return MODEL_YES; /* share 0.854 */
    }
    if (row->pain == MODEL_PAIN_ALERT_NO_PAIN) {
        return MODEL_NO; /* share 0.929 */
    }
    return MODEL_YES; /* share 0.651 */
}
