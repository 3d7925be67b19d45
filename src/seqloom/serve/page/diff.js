/** What is new in a text beside another one, by words: the longest common subsequence. */

/** @param {string} before @param {string} after @returns {{text: string, isNew: boolean}[]} */
export function diffWords(before, after) {
  const cut = (text) => text.match(/\s+|\p{sc=Han}|(?:(?!\p{sc=Han})[\p{L}\p{N}\p{M}'’-])+|[^\s]/gu) ?? [];
  const old = cut(before), now = cut(after);
  const lengths = Array.from({ length: old.length + 1 }, () => new Uint16Array(now.length + 1));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = old[i] === now[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const parts = [];
  const add = (text, isNew) => {
    const last = parts[parts.length - 1];
    if (last && last.isNew === isNew) last.text += text;
    else parts.push({ text, isNew });
  };
  let i = 0, j = 0;
  while (j < now.length) {
    if (i < old.length && old[i] === now[j]) {
      add(now[j], false);
      i += 1;
      j += 1;
    } else if (i < old.length && lengths[i + 1][j] >= lengths[i][j + 1]) i += 1;
    else {
      add(now[j], now[j].trim() !== "");
      j += 1;
    }
  }
  return parts;
}
