"use strict";
fetch("/status.json")
  .then((answer) => answer.text())
  .then((text) => { document.getElementById("status").textContent = text; });
