// Menu, theme, search, filters and copying. Every page is complete without this script.
(function () {
  "use strict";
  var root = document.documentElement;
  var home = root.dataset.root;
  var byId = function (id) { return document.getElementById(id); };

  // The menu of narrow windows.
  var menu = byId("menu");
  function setMenu(isOpen) {
    root.classList.toggle("menu-open", isOpen);
    menu.setAttribute("aria-expanded", String(isOpen));
  }
  menu.addEventListener("click", function () { setMenu(!root.classList.contains("menu-open")); });
  var current = document.querySelector("nav [aria-current]");
  if (current && current.offsetTop > window.innerHeight / 2) {
    byId("nav").scrollTop = current.offsetTop - window.innerHeight / 3;
  }

  // The switch overrides the system's preference, and is remembered where storage is allowed.
  byId("theme").addEventListener("click", function () {
    var isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch (e) { /* Private windows keep nothing. */ }
  });

  // Search: the index is a script, so that it also loads from a folder without a server.
  var field = byId("search");
  var results = byId("results");
  var RESULTS_MAX = 20;
  var loading = false;
  function load() {
    if (loading) { return; }
    loading = true;
    var script = document.createElement("script");
    script.src = home + "search-index.js";
    script.onload = show;
    document.head.appendChild(script);
  }
  function escapeHtml(text) {
    return text.replace(/[&<>"]/g, function (c) { return { "&": "&amp;", "<": "&lt;", ">": "&gt;", "\"": "&quot;" }[c]; });
  }
  // A word that is missing costs its points; an entry without half of the words is not shown. Words of two letters or less, such as
  // "to", match whole words only.
  function score(entry, words) {
    var title = entry[0].toLowerCase(), section = entry[1].toLowerCase(), text = entry[3].toLowerCase(), total = 0, met = 0;
    function has(place, word) {
      return word.length > 2 ? place.indexOf(word) >= 0 : (" " + place.replace(/[^a-z0-9]+/g, " ") + " ").indexOf(" " + word + " ") >= 0;
    }
    for (var i = 0; i < words.length; i++) {
      var word = words[i], points = 0;
      if (title === word || section === word) { points = 100; }
      else if (title.indexOf(word) === 0 || section.indexOf(word) === 0) { points = 40; }
      else if (has(section, word)) { points = 20; }
      else if (has(title, word)) { points = 15; }
      else if (has(text, word)) { points = 2; }
      if (points) { met += 1; }
      if (has(text, word)) { points += 1; }
      total += points;
    }
    if (met * 2 < words.length || !met) { return 0; }
    var phrase = words.join(" ");
    if (title === phrase || section === phrase) { total += 200; }
    else if (has(title, phrase)) { total += 100; }
    // Recipes answer everyday questions; a page comes before its sections, and all words before most of them.
    if (entry[2].indexOf("recipes/") === 0) { total += 30; }
    return (entry[1] ? total : total + 3) * met * met / (words.length * words.length);
  }
  function snippet(text, words) {
    var at = words.map(function (word) { return text.toLowerCase().indexOf(word); }).filter(function (at) { return at >= 0; })[0] || 0;
    var start = Math.max(0, at - 40);
    var piece = (start > 0 ? "… " : "") + text.slice(start, start + 150) + (text.length > start + 150 ? " …" : "");
    var pattern = words.map(function (word) { return word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"); }).join("|");
    return escapeHtml(piece).replace(new RegExp("(" + pattern + ")", "gi"), "<mark>$1</mark>");
  }
  function show() {
    var words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length || !window.searchIndex) { results.hidden = true; return; }
    var found = [];
    window.searchIndex.forEach(function (entry) {
      var points = score(entry, words);
      if (points) { found.push([points, entry]); }
    });
    found.sort(function (a, b) { return b[0] - a[0] || a[1][0].length - b[1][0].length; });
    results.innerHTML = found.slice(0, RESULTS_MAX).map(function (pair) {
      var entry = pair[1];
      var title = escapeHtml(entry[0]) + (entry[1] ? " › " + escapeHtml(entry[1]) : "");
      return "<li><a href=\"" + home + entry[2] + "\"><strong>" + title + "</strong><small>" + snippet(entry[3], words) + "</small></a></li>";
    }).join("") || "<li><p>No page has half of these words.</p></li>";
    results.hidden = false;
  }
  field.addEventListener("focus", load);
  field.addEventListener("input", function () { load(); show(); });
  function choose(step) {
    var links = Array.prototype.slice.call(results.querySelectorAll("a"));
    if (!links.length) { return; }
    var at = links.findIndex(function (link) { return link.getAttribute("aria-selected") === "true"; });
    if (at >= 0) { links[at].removeAttribute("aria-selected"); }
    var next = links[(at + step + links.length) % links.length];
    next.setAttribute("aria-selected", "true");
    next.scrollIntoView({ block: "nearest" });
  }
  field.addEventListener("keydown", function (event) {
    if (event.key === "ArrowDown") { choose(1); event.preventDefault(); }
    else if (event.key === "ArrowUp") { choose(-1); event.preventDefault(); }
    else if (event.key === "Escape") { results.hidden = true; field.blur(); }
    else if (event.key === "Enter") {
      var link = results.querySelector("a[aria-selected]") || results.querySelector("a");
      if (link && !results.hidden) { location.href = link.href; results.hidden = true; }
    }
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) { field.focus(); event.preventDefault(); }
    if (event.key === "Escape") { setMenu(false); }
  });
  document.addEventListener("click", function (event) {
    if (!event.target.closest(".search")) { results.hidden = true; }
    if (event.target.closest("nav a")) { setMenu(false); }
  });

  // The filter of long lists.
  var filter = byId("filter");
  if (filter) {
    filter.addEventListener("input", function () {
      var word = filter.value.trim().toLowerCase();
      document.querySelectorAll(".names li, tbody tr").forEach(function (row) {
        var name = (row.querySelector("code, a") || row).textContent.toLowerCase();
        row.hidden = name.indexOf(word) < 0;
      });
      document.querySelectorAll(".module").forEach(function (section) {
        section.hidden = !section.querySelector("li:not([hidden])");
      });
    });
  }

  // Copying an example.
  if (navigator.clipboard) {
    document.querySelectorAll("pre").forEach(function (block) {
      var button = document.createElement("button");
      button.textContent = "Copy";
      button.addEventListener("click", function () {
        navigator.clipboard.writeText(block.querySelector("code").textContent).then(function () {
          button.textContent = "Copied";
          setTimeout(function () { button.textContent = "Copy"; }, 1500);
        });
      });
      block.appendChild(button);
    });
  }
})();
