"use strict";
const rows = [...document.querySelectorAll("tbody tr")];
const dots = [...document.querySelectorAll("g[data-row]")];
const [label, feature] = ["label-limit", "feature-limit"].map((id) => document.getElementById(id));

function show() {
  const [auc, worst] = [Number(label.value), Number(feature.value)];
  const held = rows.map(({ dataset: one }) => (auc === 1 || (one.bound === "yes" && one.auc <= auc + 1e-9)) && one.worst <= worst + 1e-9);
  const best = rows.reduce((most, row, place) => (held[place] && (most < 0 || +row.dataset.figure > +rows[most].dataset.figure) ? place : most), -1);
  rows.forEach((row, place) => {
    row.lastElementChild.textContent = held[place] ? "yes" : "no";
    for (const node of [row, dots[place]]) {
      node.classList.toggle("out", !held[place]);
      node.classList.toggle("best", place === best);
    }
  });
  document.querySelector("output[for=label-limit]").textContent = auc.toFixed(3);
  document.querySelector("output[for=feature-limit]").textContent = worst.toFixed(2);
  const line = document.getElementById("line");
  for (const end of ["x1", "x2"]) line.setAttribute(end, `${8 + 88 * worst}%`);
  const [name, figure, read] = best < 0 ? [] : [...rows[best].children].map((cell) => cell.textContent);
  const said = best < 0 ? "Nothing that was measured holds both limits." : `Best under both limits: ${name}. Test AUC ${figure}, read at worst ${read}.`;
  const answer = document.getElementById("answer");
  if (answer.textContent !== said) answer.textContent = said; // a screen reader tells what is new alone
}

for (const slider of [label, feature]) slider.addEventListener("input", show);
show();
