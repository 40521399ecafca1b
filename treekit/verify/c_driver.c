/* Feeds rows of doubles from the standard input to a generated model.
 *
 * Compiled with -include MODEL.h and the macros FEATURES, OUTPUTS, PREDICT,
 * PREDICT_BATCH, LEVEL_CODE, CLASS_NAME and FEATURE_NAME.  The first argument
 * says what to do:
 *   single, batch  write an int label and OUTPUTS doubles for each row
 *   codes          read (int feature, int length, bytes), write an int code
 *   names          write the names of features and classes, each ended by NUL
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 1024

static double rows[BLOCK][FEATURES];
static int labels[BLOCK];
static double out[BLOCK][OUTPUTS];

static void write_names(const char *(*name)(int))
{
    int i;
    for (i = 0; name(i) != NULL; i++)
        fwrite(name(i), 1, strlen(name(i)) + 1, stdout);
    fputc('\0', stdout);
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
    const char *mode = argc > 1 ? argv[1] : "";

    if (strcmp(mode, "codes") == 0)
        return write_codes();
    if (strcmp(mode, "names") == 0) {
        write_names(FEATURE_NAME);
        write_names(CLASS_NAME);
        return 0;
    }
    while ((count = fread(rows, sizeof rows[0], BLOCK, stdin)) > 0) {
        memset(out, 0, sizeof out);
        if (strcmp(mode, "batch") == 0)
            PREDICT_BATCH(rows[0], count, labels, out[0]);
        else
            for (i = 0; i < count; i++)
                labels[i] = PREDICT(rows[i], out[i]);
        for (i = 0; i < count; i++) {
            fwrite(&labels[i], sizeof labels[0], 1, stdout);
            fwrite(out[i], sizeof out[0], 1, stdout);
        }
    }
    return 0;
}
