import Foundation
import StockroomCore
import StockroomKitSupport
import Testing

@testable import BenchmarkKit

@Suite("The page of a report") struct HTMLReportTests {
  private static let subjects = [
    "Memory", "<Files & \"such\">", "An engine whose name is long", "LMDB", "LevelDB",
  ]

  /// A report with figures from nanoseconds to seconds.
  private static func report(_ workloads: [Workload] = Workload.all) -> BenchmarkReport {
    BenchmarkReport(BenchmarkConfiguration(workloads: workloads), subjects: subjects) { subject, workload in
      guard subject != "LMDB" || workload != "open" else { return [] }
      var random = SeededRandom(seed: UInt64(subject.utf8.count * 31 + workload.utf8.count))
      let usual = exp(Double.random(in: log(5e1)...log(5e8), using: &random))
      var latencies = LatencyHistogram()
      for call in 1...1_000 { latencies.add(nanoseconds: UInt64(usual * (1 + Double(call * call) / 2e5))) }
      return [
        Measurement(
          operations: 1_000, seconds: usual * 1e-6, processorSeconds: usual * 1e-6, peakMemory: 1 << 24,
          stall: 0.001, latencies: latencies, bytesOnDisk: 8_192, bytesStored: 4_096)
      ]
    }
  }

  @Test("The page has no external references, and names are escaped")
  func selfContained() {
    let html = Self.report().html
    #expect(!html.contains("http") && !html.contains("<script") && !html.contains("src="))
    #expect(html.contains("&lt;Files &amp; &quot;such&quot;&gt;") && !html.contains("<Files"))
    for workload in Workload.all { #expect(html.contains(">\(workload.name)</text>")) }
  }

  @Test("The page explains each workload and its terms in visible text")
  func explained() {
    let html = Self.report().html
    for workload in Workload.all {
      #expect(html.contains("<figcaption>\(workload.summary.escapingHTML)"))
    }
    for word in ["median", "spread", "tie", "p50", "stall"] { #expect(html.contains("<dt>\(word)")) }
    #expect(html.contains("Bars begin at zero"))
    #expect(html.contains("thead th { position: sticky"))
    #expect(html.components(separatedBy: "not begin at zero").count == 3)
  }

  @Test("A bar shows the range of its samples, and a tie with the fastest is marked")
  func ties() throws {
    let seconds = ["a": [1.0, 1.2], "b": [1.1, 1.3], "c": [9.0, 9.5]]
    let workload = try #require(Workload.named("count")?.first)
    let report = BenchmarkReport(
      BenchmarkConfiguration(repetitions: 2, workloads: [workload]), subjects: ["a", "b", "c"]
    ) { subject, _ in
      (seconds[subject] ?? []).map {
        Measurement(
          operations: 100, seconds: $0, processorSeconds: 1, peakMemory: nil, stall: nil,
          latencies: LatencyHistogram())
      }
    }
    let chart = try #require(report.workloads.first.flatMap { report.throughputChart($0) }).svg
    #expect(chart.contains(">≈ 83.3 ops/s ±8%<"))
    #expect(chart.contains("90.9 ops/s ±9%<"))
    #expect(chart.components(separatedBy: "≈").count == 2)
    let ranges = chart.matches(of: /class="range" x1="([0-9.]+)" [^>]* x2="([0-9.]+)"/).compactMap {
      if let low = Double($0.1), let high = Double($0.2) { high - low } else { nil as Double? }
    }
    #expect(ranges.count == 3)
    #expect(ranges.allSatisfy { $0 > 0.4 })
    #expect(report.html.contains("<td>≈ 12"))
    // Without `a`, no ranges overlap.
    #expect(!report.headlineChart(unranked: ["a"]).contains("≈"))
    #expect(report.headlineChart(unranked: ["c"]).contains(">≈ 83.3 ops/s"))
  }

  @Test("There is a chart of growth only where a workload was run beside different numbers of entries")
  func growth() throws {
    let without = Self.report(Workload.standard).html
    #expect(!without.contains("Cost against the number of entries"))
    #expect(
      Self.report(try #require(Workload.named("growth"))).html.contains("Cost against the number of entries"))
  }

  /// Chromium or Chrome where Debian and macOS install it; nil if neither is there.
  static let browser: String? = [
    "/usr/bin/chromium", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
  ].first { FileManager.default.isExecutableFile(atPath: $0) }

  /// The result of `inspection`. Colors are computed styles.
  private struct Findings: Decodable {
    let charts: Int
    let overlaps: [String]
    let clipped: [String]
    /// The width of the page minus that of the window, in pixels.
    let excess: Double
    let background: String
    let faint: [String]
    /// The natural widths of the images; 0 for one that cannot be shown.
    let images: [Double]
  }

  @Test(
    "In a browser no label overlaps another or is cut off, whether narrow and light or wide and dark",
    .enabled(if: browser != nil), .timeLimit(.minutes(60)), arguments: [(500, false), (1_400, true)])
  func drawn(width: Int, isDark: Bool) async throws {
    let report = Self.report()
    let findings = try await look(at: report.html, width: width, isDark: isDark)
    // Two charts for each workload, and one for each growth workload.
    #expect(findings.charts > 2 * Workload.all.count)
    #expect(findings.overlaps == [])
    #expect(findings.clipped == [])
    #expect(findings.excess <= 0)
    #expect(findings.background == (isDark ? "rgb(14, 17, 22)" : "rgb(255, 255, 255)"))
    #expect(findings.faint == [])
  }

  @Test(
    "Overlapping and clipped labels are detected", .enabled(if: browser != nil),
    .timeLimit(.minutes(60)))
  func seesFaults() async throws {
    let page = """
      <!doctype html><meta charset="utf-8">
      <body style="background: white"><svg viewBox="0 0 100 50" width="100"><text x="2" y="20">one</text>
      <text x="4" y="22">two</text><text x="90" y="45">outside</text><text x="2" y="45" fill="#eeeeee">pale</text></svg>
      </body>
      """
    let findings = try await look(at: page, width: 400, isDark: false)
    #expect(findings.overlaps == ["one, two"])
    #expect(findings.clipped == ["outside"])
    #expect(findings.faint == ["pale"])
  }

  @Test(
    "The same holds for the chart of the headlines, which is an image that a browser shows",
    .enabled(if: browser != nil), .timeLimit(.minutes(60)),
    arguments: [false, true])
  func images(isDark: Bool) async throws {
    let charts = [
      Workload.all, Workload.named("read-one") ?? [], ["scan", "count"].flatMap { Workload.named($0) ?? [] },
    ]
    .map { Self.report($0).headlineChart() }
    for chart in charts { #expect(!chart.contains("<Files") && !chart.contains("href")) }
    let images = charts.map {
      "\($0)<img src=\"data:image/svg+xml;base64,\(Data($0.utf8).base64EncodedString())\">"
    }
    let page = """
      <!doctype html><meta charset="utf-8"><title>A page</title>
      <style>body { margin: 0; background: var(--background) }</style>
      <body>\(images.joined())</body>
      """
    let findings = try await look(at: page, width: 800, isDark: isDark)
    // Eight charts for all workloads, and one for each of the other two selections.
    #expect(findings.charts == 10)
    #expect(findings.overlaps == [])
    #expect(findings.clipped == [])
    #expect(findings.faint == [])
    #expect(findings.background == (isDark ? "rgb(14, 17, 22)" : "rgb(255, 255, 255)"))
    // A browser shows no image that is not well-formed.
    #expect(findings.images == [696, 696, 696])
  }

  @Test("Only a bar much longer than all others is cut")
  func gap() {
    func chart(_ values: [Double]) -> String {
      BarChart(
        title: "", note: "",
        bars: values.map { .init(label: "", value: $0, range: $0...$0, text: "", color: "") }
      ).drawing.svg
    }
    func lengths(_ svg: String) -> [Double] {
      svg.matches(of: /width="([0-9.]+)" height="14"/).compactMap { Double($0.1) }
    }
    #expect(!chart([300, 100, 50]).contains("gap") && !chart([900, 100]).contains("gap"))
    #expect(lengths(chart([100, 50, 25])) == [96, 48, 24])
    let cut = chart([10, 1_000, 5])
    #expect(cut.components(separatedBy: "class=\"gap\"").count == 2)
    let bars = lengths(cut)
    #expect(bars[1] == 96 && bars[0] < 80 && abs(bars[0] - 2 * bars[2]) < 0.2)
  }

  private func look(at page: String, width: Int, isDark: Bool) async throws -> Findings {
    let scratch = try ScratchDirectory(in: FileManager.default.temporaryDirectory, named: "page-tests")
    defer { try? scratch.remove() }
    let file = scratch.url.appending(path: "page.html")
    try Data(page.replacing("</body>", with: "<script>\(Self.inspection)</script></body>").utf8).write(
      to: file)
    let browser = try await ProgramOutput(
      of: [
        try #require(Self.browser), "--headless", "--no-sandbox", "--disable-gpu",
        "--window-size=\(width),900",
        "--user-data-dir=\(scratch.url.path())profile", "--dump-dom",
      ] + (isDark ? ["--force-dark-mode"] : []) + [file.absoluteString])
    let json = try #require(
      browser.text.split(separator: "FINDINGS", omittingEmptySubsequences: false).dropLast().last)
    return try JSONDecoder().decode(
      Findings.self,
      from: Data(
        json.replacing("&amp;", with: "&").replacing("&lt;", with: "<").replacing("&gt;", with: ">").utf8))
  }

  /// A script that checks every label of every chart as drawn and appends the findings to the page.
  private static let inspection = """
    window.addEventListener("load", () => {
    const overlaps = [], clipped = [], faint = [];
    const luminance = color => {
      const [r, g, b] = color.match(/[0-9.]+/g).map(Number).map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const background = getComputedStyle(document.body).backgroundColor;
    for (const svg of document.querySelectorAll("svg")) {
      const frame = svg.getBoundingClientRect();
      const labels = [...svg.querySelectorAll("text")].map(e => ({
        text: e.textContent, box: e.getBoundingClientRect(), color: getComputedStyle(e).fill
      }));
      labels.forEach((a, i) => {
        if (a.box.left < frame.left - 1 || a.box.right > frame.right + 1 || a.box.top < frame.top - 1
            || a.box.bottom > frame.bottom + 3) clipped.push(a.text);
        const [dark, light] = [luminance(a.color), luminance(background)].sort((x, y) => x - y);
        if ((light + 0.05) / (dark + 0.05) < 4.5) faint.push(a.text);
        for (const b of labels.slice(i + 1)) {
          const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
          const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
          if (across > 1 && down > 3) overlaps.push(a.text + ", " + b.text);
        }
      });
    }
    const result = document.createElement("pre");
    result.textContent = "FINDINGS" + JSON.stringify({
      charts: document.querySelectorAll("svg[role=img]").length, overlaps, clipped,
      excess: document.documentElement.scrollWidth - window.innerWidth, background, faint,
      images: [...document.images].map(image => image.naturalWidth)
    }) + "FINDINGS";
    document.body.append(result);
    });
    """
}
