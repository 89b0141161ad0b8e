// The search knows the numbers of formulas, and puts the page on a subject first.
if (typeof Search !== "undefined") {
  const bare = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").normalize(); // without accents
  const plain = (text) => bare(text.toLowerCase()).replace(/[^\p{L}\p{N}]+/gu, " ").trim();
  const one = (text) => plain(text).replace(/s$/, "");
  let asked = "";

  // A page whose file has the name that is asked for, or whose title has all the words; evidence and notes come last.
  Scorer.score = ([page, title, anchor, , score, , kind]) => {
    const name = page.replace(/^(notes\/)?\d*[a-z]?_/, ""), words = plain(title).split(" ");
    const later = /^(notes\/|1[56])/.test(page) ? 40 : 0;
    if (kind === "object" || anchor) return score - later;
    const titled = asked.split(" ").every((word) => words.includes(word)) ? 30 + 40 * asked.length / title.length : 0;
    return score + titled + (one(name) === one(asked) ? 100 : 0) - later;
  };

  const foldAccents = (index) => { // nystrom finds what Nyström finds
    const stemmer = new Stemmer();
    for (const table of [index.terms, index.titleterms])
      for (const [term, pages] of Object.entries(table))
        if (bare(term) !== term) {
          const stem = stemmer.stemWord(bare(term));
          table[stem] = [...new Set([table[stem] ?? [], pages].flat())];
        }
    return true;
  };

  const perform = Search._performSearch;
  Search._performSearch = (query, ...more) => {
    Search._index.folded ??= foldAccents(Search._index);
    asked = plain(query);
    const found = perform(query, ...more), number = query.match(/^\s*\(?([1-9A-Z]\d?\.\d+)\)?\s*$/i)?.[1].toUpperCase();
    if (equations[number]) { // the last one is shown first
      const [page, title] = equations[number];
      found.push([page, `(${number}) in ${title}`, `#eq-${number}`, null, 1000, `${page}.ipynb`, "title"]);
    }
    return found;
  };
}
