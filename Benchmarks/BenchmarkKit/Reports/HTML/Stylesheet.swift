/// The number of distinct colors of subjects.
let paletteSize = 8

/// The style of charts. The colors can be distinguished with the common color vision deficiencies, on light
/// and dark backgrounds.
let chartStyle = """
  :root {
    color-scheme: light dark;
    --background: #ffffff; --foreground: #1b1f24; --secondary: #59636e; --line: #d1d9e0;
    --color-0: #0b6bcb; --color-1: #c2570c; --color-2: #17803d; --color-3: #a3349b;
    --color-4: #8a6d00; --color-5: #0e7c86; --color-6: #c0293b; --color-7: #5c4bc9;
  }
  @media (prefers-color-scheme: dark) {
    :root {
      --background: #0e1116; --foreground: #e6edf3; --secondary: #9aa5b1; --line: #30363d;
      --color-0: #58a6ff; --color-1: #f59e53; --color-2: #4ac26b; --color-3: #e48be0;
      --color-4: #e3c341; --color-5: #4fc9d4; --color-6: #ff7b86; --color-7: #a99cff;
    }
  }
  svg text { font: 12px system-ui, sans-serif; fill: var(--foreground); }
  svg text.title { font-weight: 600; font-size: 13px; }
  svg text.secondary { fill: var(--secondary); font-size: 11px; }
  svg .line { stroke: var(--line); }
  svg .range { stroke: var(--foreground); stroke-width: 1.5; }
  svg .gap { stroke: var(--background); stroke-width: 4; }
  """

/// The style of the rest of the page.
let pageStyle = """
  body {
    margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 76rem; background: var(--background); color: var(--foreground);
    font: 15px/1.5 system-ui, sans-serif;
  }
  h1 { font-size: 1.6rem; margin: 0 0 .3rem; }
  h2 { font-size: 1.2rem; margin: 2rem 0 .2rem; }
  p { margin: 0 0 .8rem; color: var(--secondary); }
  .legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; list-style: none; margin: 0; padding: 0; }
  .charts { display: grid; grid-template-columns: repeat(auto-fill, 320px); gap: 1.2rem 2rem; }
  figure { margin: 0; }
  figcaption, dl { font-size: 13px; color: var(--secondary); }
  figcaption { max-width: 320px; margin-top: .2rem; }
  dl { margin: 0; max-width: 46rem; }
  dt { color: var(--foreground); font-weight: 600; margin-top: .4rem; }
  dd { margin: 0; }
  .charts svg { display: block; width: 320px; max-width: 100%; height: auto; }
  .scroll { overflow: auto; max-height: 85vh; }
  table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; font-size: 13px; }
  th, td { text-align: right; padding: .2rem .7rem; border-bottom: 1px solid var(--line); }
  thead th { position: sticky; top: 0; background: var(--background); }
  th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
  """
