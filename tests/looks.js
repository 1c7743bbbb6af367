// What a reader of a page would stumble over: faint text, lines of code that end at the edge, and a page wider than the window.
function looks(page) {
  const pen = Object.assign(page.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = color;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, a, ground) => ground.map((value, n) => top[n] * a + value * (1 - a));
  const light = (color) =>
    color.map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
      .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const style = (element) => page.defaultView.getComputedStyle(element);
  const above = (element) => (element ? [element, ...above(element.parentElement)] : []);
  const faint = new Set();
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || element.closest("script, style, noscript, svg, title")) continue;
    if (!element.getClientRects().length || style(element).visibility === "hidden") continue;
    const ancestors = above(element);
    const opacity = ancestors.reduce((product, one) => product * style(one).opacity, 1);
    if (opacity < 0.05) continue;
    const grounds = ancestors.map((one) => rgba(style(one).backgroundColor)).filter((color) => color[3] > 0);
    const ground = grounds.reverse().reduce((below, color) => over(color, color[3], below), [255, 255, 255]);
    const ink = rgba(style(element).color);
    const [dark, bright] = [light(over(ink, ink[3] * opacity, ground)), light(ground)].sort((a, b) => a - b);
    const contrast = (bright + 0.05) / (dark + 0.05);
    if (contrast < 4.5) faint.add(`${contrast.toFixed(2)} ${element.className || element.tagName}`);
  }
  const code = [...page.querySelectorAll(".highlight:not(.drawing) pre code")];
  const cut = code.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent.slice(0, 40));
  return { faint: [...faint], cut, wide: page.documentElement.scrollWidth > page.documentElement.clientWidth };
}
