// Prints the first three results of each question. Arguments: script.js, search-index.js, questions.
"use strict";
var fs = require("fs");
var window = {};
eval(fs.readFileSync(process.argv[3], "utf8"));
var text = fs.readFileSync(process.argv[2], "utf8");
var score = eval("(" + text.slice(text.indexOf("function score("), text.indexOf("  function snippet(")) + ")");
process.argv.slice(4).forEach(function (question) {
  var words = question.toLowerCase().split(/\s+/);
  var found = window.searchIndex.map(function (entry) { return [score(entry, words), entry]; });
  found = found.filter(function (pair) { return pair[0] > 0; });
  found.sort(function (a, b) { return b[0] - a[0] || a[1][0].length - b[1][0].length; });
  console.log(found.slice(0, 3).map(function (pair) { return pair[1][2]; }).join(" "));
});
