"use strict";
// What the page must look like on a narrow screen. Tells the page around its frame.
const problems = [];
const wide = document.documentElement.scrollWidth;
if (innerWidth !== 360 || wide > innerWidth) problems.push(`${wide} px in ${innerWidth}`);
const overlap = (labels) => labels.some((label, at) => at && label.left < labels[at - 1].right);
for (const axis of document.querySelectorAll(".axis")) {
  const shown = [...axis.children].filter((label) => !label.hidden).map((label) => label.getBoundingClientRect());
  if (!shown.length || overlap(shown)) problems.push("labels of " + axis.textContent);
  if (shown.some((label) => label.right > innerWidth)) problems.push("a cut label of " + axis.textContent);
}
// The timeline's labels, as they were drawn.
const drawn = [], fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
  if (y === 11) drawn.push({ left: x, right: x + this.measureText(text).width });
  return fillText.call(this, text, x, y, ...rest);
};
dispatchEvent(new Event("resize"));
const canvas = document.getElementById("canvas");
if (!drawn.length || overlap(drawn) || drawn.some((label) => label.right > canvas.clientWidth)) problems.push("time axis: " + JSON.stringify(drawn));
parent.postMessage(problems.length ? problems.join("; ") : "fits", "*");
