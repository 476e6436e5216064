"use strict";
// Notes in an attribute of the body what can be measured of a page without looking at it.
{
  // As drawn without colours: what is told apart has to differ in luminance (WCAG 2.2, 1.4.3).
  function parts(colour) { return (colour.match(/[\d.]+/g) || []).map(Number); }
  function luminance(colour) {
    const [r, g, b] = parts(colour).map(part => part / 255).map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function contrast(one, other) {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }
  const opaque = colour => colour.startsWith("rgb") && (parts(colour).length < 4 || parts(colour)[3] > 0);
  function ground(element) {
    for (let at = element; at; at = at.parentElement) {
      const rect = at instanceof SVGGElement && [...at.children].find(child => child instanceof SVGRectElement);
      if (rect && opaque(getComputedStyle(rect).fill)) return getComputedStyle(rect).fill;
      const colour = getComputedStyle(at).backgroundColor;
      if (opaque(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  }
  for (const closed of document.querySelectorAll("details")) closed.open = true;
  const faint = [], outside = [], overlapping = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    if (!text || element.closest("script, style, title, desc") || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const found = contrast(element instanceof SVGElement ? style.fill : style.color, ground(element));
    if (found < 4.5) faint.push([text.slice(0, 40), Math.round(100 * found) / 100]);
  }
  for (const drawing of document.querySelectorAll("svg[viewBox]")) {
    const frame = drawing.getBoundingClientRect(), label = drawing.getAttribute("aria-label") || "";
    const texts = [...drawing.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
    for (const [text, box] of texts) {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        outside.push([label, text]);
    }
    texts.sort((one, other) => one[1].top - other[1].top);
    for (let k = 0; k < texts.length; k++) for (let n = k + 1; n < texts.length && texts[n][1].top < texts[k][1].bottom - 2; n++) {
      const [one, other] = [texts[k][1], texts[n][1]];
      if (one.left < other.right - 1 && other.left < one.right - 1) overlapping.push([label, texts[k][0], texts[n][0]]);
    }
  }
  document.body.dataset.measures = JSON.stringify({
    width: innerWidth, wider: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    drawings: document.querySelectorAll("svg[viewBox]").length, faint, outside, overlapping,
  });
}
