// Draw everything that the page has a place for.
for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const spec = data.charts[figure.dataset.chart];
  ({ lines, scatter, parallel, matrix })[spec.kind](figure, spec);
}
for (const box of document.querySelectorAll("[data-table]")) addPointTable(box, box.dataset.table);
for (const box of document.querySelectorAll("[data-ask]")) addPreferenceQuestions(box, box.dataset.ask);
for (const table of document.querySelectorAll("table[data-sort]")) makeSortable(table);
