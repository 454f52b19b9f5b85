// Before anything is painted, so that nobody sees the wrong one first.
(function () {
  try {
    const chosen = localStorage.getItem("theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Without storage the system's own choice holds.
  }
})();
