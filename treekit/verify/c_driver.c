/* Runs a generated model on rows of doubles from the standard input.
 *
 * Compiled with -include MODEL.h and the macros FEATURES, TARGETS, LABELS,
 * OUTPUTS, CELL, NUMBER, PREDICT, PREDICT_BATCH, LEVEL_CODE, LEVEL_COUNT,
 * CLASS_NAME, TARGET_NAME and FEATURE_NAME, and KEY and BITS (32 or 64) where a
 * row's cells are keys.  LABELS is 1, or TARGETS if there are several with classes.
 * The first argument is the mode:
 *   single, batch  write LABELS ints and OUTPUTS numbers for each row
 *   codes          read (int feature, int length, bytes), write an int code
 *   names          write the names of features, the targets if there are
 *                  several, and the classes of each, each ended by NUL
 *
 * A model of the readable form is compiled with the macros ROW (its struct),
 * MEMBERS (statements that fill `row` from `cells`), FEATURES, NUMBER and PREDICT,
 * and a NUMBER is written for each row.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef ROW
static int code_of(double x)
{
    return x >= 0 && x < 2147483648.0 && (double)(int32_t)x == x ? (int)x : -1;
}

int main(void)
{
    double cells[FEATURES];
    ROW row;
    NUMBER result;

    while (fread(cells, sizeof cells, 1, stdin) == 1) {
        MEMBERS
        (void)code_of;
        result = (NUMBER)PREDICT(&row);
        fwrite(&result, sizeof result, 1, stdout);
    }
    return 0;
}
#else

#define BLOCK 1024

static double given[BLOCK][FEATURES];
static CELL rows[BLOCK][FEATURES];
static int labels[BLOCK][LABELS];
static NUMBER out[BLOCK][OUTPUTS];

#ifdef KEY
#if BITS == 32
typedef float real;
#else
typedef double real;
#endif

/* The key of a number, or the code of a category: -2 is unseen, but not missing. */
static CELL cell_of(double value, int feature)
{
    union {
        real number;
        CELL bits;
    } cell;

    cell.number = (real)value;
    if (LEVEL_COUNT(feature) >= 0 && value == value)
        return value >= 0 && value < 2147483648.0 && (double)(int32_t)value == value
            ? (CELL)value : (CELL)-2;
    return KEY(cell.bits);
}
#else
static CELL cell_of(double value, int feature)
{
    (void)feature;
    return (CELL)value;
}
#endif

static void write_names(const char *(*name)(int))
{
    int i;
    for (i = 0; name(i) != NULL; i++)
        fwrite(name(i), 1, strlen(name(i)) + 1, stdout);
    fputc('\0', stdout);
}

#if LABELS > 1
static int target;

static const char *class_of_target(int number)
{
    return CLASS_NAME(target, number);
}
#endif

static void write_all_names(void)
{
    write_names(FEATURE_NAME);
#if TARGETS > 1
    write_names(TARGET_NAME);
#endif
#if LABELS > 1
    for (target = 0; target < TARGETS; target++)
        write_names(class_of_target);
#else
    write_names(CLASS_NAME);
#endif
}

static void ask(size_t row)
{
#if LABELS > 1
    if (PREDICT(rows[row], labels[row], out[row]) < 0)
        memset(labels[row], -1, sizeof labels[row]);
#else
    labels[row][0] = PREDICT(rows[row], out[row]);
#endif
}

static int write_codes(void)
{
    int head[2], code;
    while (fread(head, sizeof head[0], 2, stdin) == 2) {
        char *text = malloc((size_t)head[1] + 1);
        if (text == NULL || fread(text, 1, (size_t)head[1], stdin) != (size_t)head[1])
            return 1;
        text[head[1]] = '\0';
        code = LEVEL_CODE(head[0], text);
        fwrite(&code, sizeof code, 1, stdout);
        free(text);
    }
    return 0;
}

int main(int argc, char **argv)
{
    size_t count, i;
    int feature;
    const char *mode = argc > 1 ? argv[1] : "";

    if (strcmp(mode, "codes") == 0)
        return write_codes();
    if (strcmp(mode, "names") == 0) {
        write_all_names();
        return 0;
    }
    while ((count = fread(given, sizeof given[0], BLOCK, stdin)) > 0) {
        for (i = 0; i < count; i++)
            for (feature = 0; feature < FEATURES; feature++)
                rows[i][feature] = cell_of(given[i][feature], feature);
        memset(out, 0, sizeof out);
        if (strcmp(mode, "batch") == 0)
            PREDICT_BATCH(rows[0], count, labels[0], out[0]);
        else
            for (i = 0; i < count; i++)
                ask(i);
        for (i = 0; i < count; i++) {
            fwrite(labels[i], sizeof labels[0], 1, stdout);
            fwrite(out[i], sizeof out[0], 1, stdout);
        }
    }
    return 0;
}
#endif
