"use strict";
// What a visitor does with the page, and what it must look like then.
const fail = (text) => { document.documentElement.dataset.failure = text; throw new Error(text); };
const check = (condition, text) => { if (!condition) fail(text); };
const cells = (table, column) => [...document.querySelectorAll(`#table-${table} tbody tr`)].map((row) => row.children[column].textContent);
check(document.documentElement.dataset.ready === "yes", "the page's own script did not end");
check(document.title.includes("run.gtcap"), "title: " + document.title);
// Sorting.
const names = document.querySelector("#table-kernels th");
names.click();
const up = cells("kernels", 0);
check(up.length === 3 && up.every((name, at) => !at || up[at - 1].localeCompare(name) <= 0), "ascending: " + up);
names.click();
check(cells("kernels", 0).join() === up.reverse().join(), "descending");
// Filtering, by text with letters of either case.
const search = document.querySelector("#table-kernels input");
search.value = "IMG SRC";
search.dispatchEvent(new Event("input"));
check(cells("kernels", 0).length === 1, "filter");
// A histogram of the row that was chosen.
document.querySelector("#table-kernels tbody tr").click();
check(document.querySelector("#table-kernels .histogram .name").textContent.startsWith("<\/script><img"), "histogram");
// The timeline: zoom, move, all.
const canvas = document.getElementById("canvas"), range = () => document.getElementById("range").textContent;
const whole = range();
check(whole === "0 ns - 500 us", "range: " + whole);
const at = (type, x, more) => canvas.dispatchEvent(new (type === "wheel" ? WheelEvent : PointerEvent)(type, { clientX: canvas.getBoundingClientRect().left + x, clientY: canvas.getBoundingClientRect().top + 60, bubbles: true, cancelable: true, ...more }));
at("wheel", 400, { deltaY: -300 });
const zoomed = range();
check(zoomed !== whole, "wheel");
at("pointerdown", 500, {}); at("pointermove", 400, {}); at("pointerup", 400, {});
check(range() !== zoomed, "drag");
at("pointermove", 420, {});
check(!document.getElementById("tip").hidden, "tip");
document.getElementById("zoom-all").click();
check(range() === whole, "all");
const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
check(pixels.some((value) => value !== 0), "nothing is drawn");
check(document.body.textContent.includes("hipDeviceSynchronize"), "unfinished calls");
check(!document.querySelector("img"), "a name became markup");
document.documentElement.dataset.visited = "yes";
