/* Score melons with the exported C; needs only a compiler.
 *
 *     cc -std=c99 score.c melons.c -o score && ./score < melons.tsv
 *
 * A line holds the cells of a melon, separated by tabs: six categories, then two
 * numbers. An empty cell is missing.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "melons.h"

#define CATEGORIES 6

int main(void)
{
    char line[4096];

    while (fgets(line, sizeof line, stdin)) {
        double x[MELONS_FEATURES], share[MELONS_OUTPUTS];
        char *cell = line;
        int label;

        line[strcspn(line, "\n")] = '\0';
        for (int f = 0; f < MELONS_FEATURES; f++) {
            size_t length = strcspn(cell, "\t");
            char *next = cell + length + (cell[length] == '\t');

            cell[length] = '\0';
            if (length == 0)
                x[f] = NAN;
            else if (f < CATEGORIES)
                x[f] = melons_level_code(f, cell); /* -1 is unseen, scored as missing */
            else
                x[f] = strtod(cell, NULL);
            cell = next;
        }
        label = melons_predict(x, share);
        printf("%s", melons_class_name(label));
        for (int k = 0; k < MELONS_OUTPUTS; k++)
            printf("\t%a", share[k]);
        putchar('\n');
    }
    return 0;
}
