/**
 * The mean over a window that is centred on each point and never longer on one side than on the other.
 *
 *     s_i = mean(v_{i−r} … v_{i+r}),   r = min(radius, i, n − 1 − i)
 *
 * So a curve is not late, as an exponential mean is, and it ends in the last point that was measured.
 *
 * @param {number[]} values @param {number} radius in points
 */
export function smoothed(values, radius) {
  if (!radius) return values;
  const sums = [0];
  for (const value of values) sums.push(sums[sums.length - 1] + value);
  return values.map((_, at) => {
    const reach = Math.min(radius, at, values.length - 1 - at);
    return (sums[at + reach + 1] - sums[at - reach]) / (2 * reach + 1);
  });
}
