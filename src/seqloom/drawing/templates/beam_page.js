// The tree stands in beam_tree.js, whose text comes before this one.
const beam = mountTree(document.getElementById("beam"), JSON.parse(document.getElementById("data").textContent));
let chosenPath = null;
for (const button of document.querySelectorAll("[data-path]")) {
  button.addEventListener("click", () => {
    const number = Number(button.dataset.path);
    chosenPath = chosenPath === number ? null : number;
    beam.showPath(chosenPath);
  });
}
