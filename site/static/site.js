// Formulas in running text that are wider than the text scroll in a box of their own.
addEventListener("DOMContentLoaded", () => {
  const mark = () => document.querySelectorAll("article span.math").forEach((formula) => {
    formula.classList.remove("wide");
    const room = formula.parentElement.closest("p, li, td, th, dd, summary, h1, h2, h3, h4, article");
    formula.classList.toggle("wide", formula.offsetWidth > room.clientWidth);
  });
  new ResizeObserver(mark).observe(document.querySelector("article"));
});
