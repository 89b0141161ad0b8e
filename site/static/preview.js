// A cited number, a link to #eq-..., shows its formula while the pointer or the keyboard is on it.
addEventListener("DOMContentLoaded", () => {
  const card = document.createElement("div");
  let shown = null, leaving;
  card.id = "preview";
  card.setAttribute("role", "tooltip");
  card.hidden = true;
  document.body.append(card);

  const hide = () => {
    card.hidden = true;
    shown?.removeAttribute("aria-describedby");
    shown = null;
  };
  const leave = () => { leaving = setTimeout(hide, 200); }; // time to move onto the card
  const stay = () => clearTimeout(leaving);

  const show = async (link) => {
    stay();
    if (shown === link) return;
    const [, title, tex] = equations[decodeURIComponent(link.hash).slice("#eq-".length)];
    hide();
    shown = link;
    await MathJax.startup.promise;
    MathJax.typesetClear([card]);
    card.replaceChildren(document.createElement("div"), title);
    card.firstChild.className = "math";
    card.firstChild.textContent = `\\[${tex}\\]`;
    await MathJax.typesetPromise([card.firstChild]);
    if (shown !== link) return;
    card.hidden = false;
    const at = link.getClientRects()[0], room = document.documentElement.clientWidth - card.offsetWidth - 8;
    const above = at.bottom + card.offsetHeight + 8 > innerHeight && at.top > card.offsetHeight + 8;
    card.style.left = `${scrollX + Math.max(8, Math.min(at.left, room))}px`;
    card.style.top = `${scrollY + (above ? at.top - card.offsetHeight - 4 : at.bottom + 4)}px`;
    link.setAttribute("aria-describedby", card.id);
  };

  for (const link of document.querySelectorAll('article a[href*="#eq-"]')) {
    link.addEventListener("pointerenter", () => show(link));
    link.addEventListener("focus", () => show(link));
    link.addEventListener("pointerleave", leave);
    link.addEventListener("blur", hide);
  }
  card.addEventListener("pointerenter", stay);
  card.addEventListener("pointerleave", leave);
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
});
