// How wide formulas are, in their font size: the style shrinks those that are wider than their box, on paper until they
// fit. On the screen the rest scrolls; so do formulas in running text that are wider than the text.
window.ready = new Promise((done) => addEventListener("DOMContentLoaded", async () => {
  const mark = () => document.querySelectorAll("article span.math").forEach((formula) => {
    formula.classList.remove("wide");
    const room = formula.parentElement.closest("p, li, td, th, dd, summary, h1, h2, h3, h4, article");
    formula.classList.toggle("wide", formula.offsetWidth > room.clientWidth);
  });
  document.querySelectorAll(".cell_output img").forEach((image) => { // on a phone panels side by side scroll
    const see = () => image.classList.toggle("panels", image.naturalWidth > 2 * image.naturalHeight);
    image.complete ? see() : image.addEventListener("load", see);
  });
  const tree = document.querySelector(".sidebar-scroll"), current = tree.querySelector(".current-page");
  if (current) tree.scrollTo({top: current.offsetTop - tree.offsetTop - tree.clientHeight / 2, behavior: "instant"});
  new ResizeObserver(mark).observe(document.querySelector("article"));
  await MathJax.startup.promise;
  const ruler = document.querySelector("article").appendChild(document.createElement("div"));
  ruler.style.width = "100ex";
  const ex = ruler.offsetWidth / 100 / parseFloat(getComputedStyle(ruler).fontSize); // in em
  ruler.remove();
  const inEm = (text) => text.replace(/-?[\d.]+(?=ex)/g, (number) => number * ex).replace(/ex\b/g, "em");
  document.querySelectorAll("article div.math mjx-container").forEach((drawn) => { // ex are rounded to pixels, em not
    const svg = drawn.firstElementChild;
    for (const [node, name] of [[drawn, "style"], [svg, "style"], [svg, "width"], [svg, "height"]])
      if (node.hasAttribute(name)) node.setAttribute(name, inEm(node.getAttribute(name)));
    drawn.parentElement.style.setProperty("--width", parseFloat(drawn.style.minWidth || svg.getAttribute("width")));
  });
  done();
}));
