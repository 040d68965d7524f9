// How many runs were accepted when. Dragging chooses a range, which becomes part of the address.
"use strict";
document.addEventListener("DOMContentLoaded", async () => {
  const place = document.getElementById("histogram"), accepted = document.getElementById("accepted");
  if (!place) return;
  // a period chosen after it takes the place of the range
  const period = document.querySelector("#filters [name=period]");
  period.addEventListener("change", () => {
    const isRange = "range" in period.selectedOptions[0].dataset;
    for (const name of ["since", "until"]) if (period.form.elements[name]) period.form.elements[name].disabled = !isRange;
  });
  period.form.addEventListener("reset", () => { for (const name of ["since", "until"]) if (period.form.elements[name]) period.form.elements[name].disabled = false; });
  const query = new URLSearchParams(location.search);
  query.delete("tenant");
  const text = await hocket.part(`/runs/histogram.json?${query}`);
  if (text === null) { accepted.textContent = "The runs could not be counted."; return; }
  const data = JSON.parse(text);
  accepted.textContent = `${data.total.toLocaleString("en")} run${data.total === 1 ? "" : "s"}`;
  const names = ["good", "running", "cancelled", "failed"];
  const times = data.good.map((_, i) => data.start + (i + 0.5) * data.width);
  // stacked: each series is drawn over the ones it includes
  const sums = [];
  names.forEach((name, i) => sums.push(data[name].map((value, at) => value + (i ? sums[i - 1][at] : 0))));
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let plot;
  function draw() {
    plot?.destroy();
    const colours = { good: css("--good"), running: css("--live"), cancelled: css("--idle"), failed: css("--bad") };
    const bars = uPlot.paths.bars({ size: [0.9, 40], align: 0 });
    const axis = { stroke: css("--dim"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    plot = new uPlot({
      width: place.clientWidth, height: 128, legend: { show: false }, cursor: { y: false, drag: { x: true, setScale: false } },
      tzDate: (ts) => uPlot.tzDate(new Date(ts * 1e3), "Etc/UTC"),
      scales: { x: { time: true, range: [data.start, data.start + data.width * data.good.length] }, y: { range: (_, __, max) => [0, Math.max(max, 1)] } },
      axes: [{ ...axis, values: (u, splits) => splits.map((t, i) => { const d = new Date(t * 1e3).toISOString(); return i === 0 || d.slice(0, 10) !== new Date(splits[i - 1] * 1e3).toISOString().slice(0, 10) ? `${d.slice(11, 16)}\n${d.slice(0, 10)}` : d.slice(11, 16); }) }, { ...axis, size: 44, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6] }],
      series: [{}, ...names.map((name) => ({ paths: bars, points: { show: false }, fill: colours[name], stroke: colours[name], width: 0 })).reverse()],
      hooks: { setSelect: [(u) => {
        if (u.select.width < 4) return;
        const from = u.posToVal(u.select.left, "x"), to = u.posToVal(u.select.left + u.select.width, "x");
        const address = new URL(location.href);
        address.searchParams.set("since", new Date(from * 1e3).toISOString());
        address.searchParams.set("until", new Date(to * 1e3).toISOString());
        address.searchParams.delete("after");
        location.href = address;
      }] },
    }, [times, ...sums.slice().reverse()], place);
  }
  draw();
  new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: 128 })).observe(place);
  document.addEventListener("hocket:theme", draw);
});
