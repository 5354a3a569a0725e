/* The Runs page: it asks for JSON every two seconds and shows it. Names and errors may contain HTML, so all
   data is inserted as text. */
(function () {
    "use strict";

    const EVERY_MS = 2000;
    const PATIENCE_MS = 10000;
    const FILES_PATIENCE_MS = 120000;
    const FIRST_WORKERS = 50;
    const SILENT_SECONDS = 15; // as shardsift/fleet/ledger/records.py has it
    const MARKS = {good: "✓", doubtful: "!", bad: "✕"};
    const STATES = ["done", "running", "queued", "failed"];
    const COMMAND = /^(.*: )((?:producer|worker) .*)$/;
    const NUMBERS = new Intl.NumberFormat("en-US");
    const ROUNDED = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0});
    const SVG = "http://www.w3.org/2000/svg";

    // ---- Small helpers ------------------------------------------------------------------------------------------------

    function byId(id) {
        return document.getElementById(id);
    }

    function make(tag, attributes, ...children) {
        return filled(document.createElement(tag), attributes, children);
    }

    function draw(tag, attributes, ...children) {
        return filled(document.createElementNS(SVG, tag), attributes, children);
    }

    function filled(element, attributes, children) {
        Object.entries(attributes || {}).forEach(([name, value]) => element.setAttribute(name, value));
        element.append(...children.filter((child) => child !== null));
        return element;
    }

    function setText(element, text) {
        if (element.textContent !== text) {
            element.textContent = text;
        }
    }

    function count(number, noun) {
        return NUMBERS.format(number) + " " + noun + (number === 1 ? "" : "s");
    }

    function percent(part, whole) {
        return whole ? (100 * part / whole).toFixed(1) + " %" : "—";
    }

    /* Returns a function that calls `render` only if its data has changed, so that focus and open parts stay. */
    function onChange(render) {
        let last;
        return function (data) {
            const text = JSON.stringify(data);
            if (text !== last) {
                last = text;
                render(data);
            }
        };
    }

    function command(text) {
        const code = make("code", {class: "command"}, text);
        if (!navigator.clipboard) { // without TLS, browsers have none, except for localhost
            return code;
        }
        const button = make("button", {type: "button", class: "small-button", "aria-label": "Copy: " + text}, "Copy");
        button.addEventListener("click", function () {
            navigator.clipboard.writeText(text).then(() => setText(button, "Copied"));
        });
        return make("span", {class: "command-line"}, code, button);
    }

    function traceback(text, key, opened) {
        const details = make("details", {class: "traceback"}, make("summary", {}, "Traceback"), make("pre", {tabindex: "0"}, text));
        details.open = opened.has(key);
        details.addEventListener("toggle", () => opened[details.open ? "add" : "delete"](key));
        return details;
    }

    function stateBadge(state, level) {
        return [make("span", {class: "badge-mark", "aria-hidden": "true"}, MARKS[level] || ""), state];
    }

    function showState(element, state, level) {
        element.className = "badge-state level-" + level;
        if (element.dataset.state !== state + level) {
            element.dataset.state = state + level;
            element.replaceChildren(...stateBadge(state, level));
        }
    }

    // ---- Asking again and again ---------------------------------------------------------------------------------------

    async function ask(url, patienceMs = PATIENCE_MS) {
        let answer, data;
        try {
            const whole = new URL(url, window.location.origin); // without the login that the page's own address may hold
            answer = await fetch(whole, {cache: "no-store", signal: AbortSignal.timeout(patienceMs)});
        } catch (error) {
            throw new Error("The server does not answer.");
        }
        if (answer.status === 401) {
            throw new Error("You are logged out: reload the page.");
        }
        try {
            data = await answer.json();
        } catch (error) {
            throw new Error("The server answers with an error (" + answer.status + ").");
        }
        if (!answer.ok) {
            throw new Error(data.error);
        }
        return data;
    }

    function watch(url, show) {
        let timer = null;
        let shownAt = null;

        async function look() {
            timer = null;
            if (document.hidden) {
                return;
            }
            try {
                const data = await ask(url);
                shownAt = new Date();
                tellLive();
                show(data);
            } catch (error) {
                tellStale(error.message, shownAt);
                if (!(error instanceof Error) || error instanceof TypeError) {
                    console.error(error);
                }
            }
            timer = window.setTimeout(look, EVERY_MS);
        }

        document.addEventListener("visibilitychange", function () {
            if (!document.hidden && timer === null) {
                look();
            }
        });
        look();
    }

    function tellLive() {
        byId("live-dot").className = "status-dot status-dot-live";
        setText(byId("live"), "Live");
        byId("problem").hidden = true;
    }

    function tellStale(message, shownAt) {
        byId("live-dot").className = "status-dot status-dot-error";
        setText(byId("live"), "Not live");
        const since = shownAt ? " What you see is from " + shownAt.toLocaleTimeString() + "." : "";
        setText(byId("problem"), message + since + " Trying again.");
        byId("problem").hidden = false;
    }

    // ---- The list of runs ---------------------------------------------------------------------------------------------

    function showRuns(rows, data) {
        setText(byId("present"), data.present);
        byId("empty").hidden = data.runs.length > 0;
        const older = data.runs_in_all - data.runs.length;
        byId("older").hidden = older === 0;
        setText(byId("older"), count(older, "older run") + ": producer runs");
        byId("runs").hidden = data.runs.length === 0;
        rows(data.runs);
    }

    function runRow(base, run) {
        const link = make("a", {href: base + "/" + encodeURIComponent(run.run_id)}, run.run_id);
        if (run.error) {
            return make("tr", {}, cell("Run", link), make("td", {colspan: "6"}, run.error));
        }
        const counts = run.counts;
        const why = run.why ? make("span", {class: "run-why"}, ...withCommand(run.why)) : null;
        return make("tr", {},
            cell("Run", why ? make("span", {}, link, why) : link, "name"),
            cell("State", make("span", {class: "badge-state level-" + run.level}, ...stateBadge(run.state, run.level))),
            cell("Shards done", NUMBERS.format(counts.done) + " of " + NUMBERS.format(counts.shards) +
                (counts.failed ? ", " + NUMBERS.format(counts.failed) + " failed" : "")),
            cell("Rows", NUMBERS.format(counts.rows_in + counts.rows_running), "number"),
            cell("Kept", percent(counts.rows_kept, counts.rows_in), "number"),
            cell("Rows/s", speed(run), "number"),
            cell("Left", run.time_left || "—", "short"));
    }

    /* The current speed of a running run, or the mean speed of a run without open shards. A dash while a run waits. */
    function speed(run) {
        const waits = run.counts.queued + run.counts.running > 0 && run.state !== "running";
        return waits ? "—" : ROUNDED.format(run.rows_per_second);
    }

    function cell(label, content, name) {
        return make("td", {"data-label": label, class: name || ""}, make("span", {}, content));
    }

    function startRuns(root) {
        const rows = onChange((runs) => byId("runs").tBodies[0].replaceChildren(...runs.map((run) => runRow(root.dataset.page, run))));
        watch(root.dataset.api, (data) => showRuns(rows, data));
    }

    // ---- One run: the verdict and the figures -------------------------------------------------------------------------

    function showVerdict(data) {
        const counts = data.counts;
        byId("verdict").className = "verdict level-" + data.level;
        showState(byId("state"), data.state, data.level);
        showHeadline(data.headline);
        setText(byId("done"), NUMBERS.format(counts.done) + " of " + NUMBERS.format(counts.shards));
        setText(byId("speed"), speed(data));
        setText(byId("left"), data.time_left || "—");
        setText(byId("kept"), percent(counts.rows_kept, counts.rows_in));
        const share = counts.shards ? Math.floor(100 * counts.done / counts.shards) : 0;
        document.title = share + " % " + data.state + " · " + data.run_id;
    }

    const showHeadline = onChange((text) => byId("headline").replaceChildren(...withCommand(text)));

    function showNext(lines) {
        byId("next").replaceChildren(...lines.map((line) => make("li", {}, ...withCommand(line))));
    }

    function withCommand(line) {
        const found = COMMAND.exec(line);
        return found ? [found[1], command(found[2])] : [line];
    }

    function showLines(lines) {
        byId("lines").replaceChildren(...lines.map(([label, value]) =>
            make("div", {class: "detail-row"}, make("dt", {}, label), make("dd", {}, value || ""))));
    }

    function showBar(counts) {
        const bar = byId("bar");
        const share = (state) => 100 * counts[state] / Math.max(1, counts.shards);
        bar.setAttribute("aria-valuenow", Math.floor(share("done")));
        bar.replaceChildren(...["done", "running", "failed"].filter((state) => counts[state]).map(function (state) {
            const part = make("div", {class: "bar-part state-" + state});
            part.style.width = share(state) + "%";
            return part;
        }));
        byId("legend").replaceChildren(...STATES.map((state) =>
            make("li", {}, make("span", {class: "cell state-" + state, "aria-hidden": "true"}), NUMBERS.format(counts[state]) + " " + state)));
    }

    // ---- Failed shards ------------------------------------------------------------------------------------------------

    function newFailures(root) {
        const opened = new Set();
        return onChange(function ({failures, failed}) {
            byId("failed-card").hidden = !failed;
            const left_out = failed - failures.length;
            byId("failed").replaceChildren(
                make("p", {}, "After fixing the cause: ", command("producer retry " + root.dataset.run)),
                ...failures.map((failure) => make("article", {class: "shard"},
                    make("h3", {}, failure.shard),
                    make("p", {class: "shard-error"}, failure.error),
                    make("p", {class: "small-print"}, "Attempt " + NUMBERS.format(failure.attempts) + ", on " + (failure.worker || "an unknown worker")),
                    failure.traceback ? traceback(failure.traceback, failure.shard, opened) : null)),
                ...(left_out > 0 ? [make("p", {class: "small-print"}, "And " + NUMBERS.format(left_out) + " more: producer status " + root.dataset.run)] : []));
        });
    }

    // ---- Scores -------------------------------------------------------------------------------------------------------

    function showScores({scores, where}) {
        const isThreshold = scores.some((column) => column.threshold !== null);
        const shown = scores.map((column) => column.column).join(", ");
        setText(byId("scores-of"), scores.length === 0 ? "No row has a score yet."
            : !where ? "Every row is kept."
            : "The filter keeps rows with " + where + "." + (isThreshold ? "" : " The chart of " + shown + " marks no threshold of it."));
        byId("scores").replaceChildren(...scores.map((column) => scoreColumn(column, !where)));
    }

    function scoreColumn(column, keepsAll) {
        return make("article", {class: "scores"}, make("h3", {}, column.column), histogram(column, keepsAll), keepRates(column));
    }

    function histogram(column, keepsAll) {
        const width = 360, height = 190, left = 8, bottom = 160, top = 22;
        const first = column.bins[0].start;
        const last = column.bins[column.bins.length - 1].end;
        const most = Math.max(...column.bins.map((bin) => bin.rows));
        const x = (score) => left + (width - 2 * left) * (score - first) / (last - first);
        const shown = (score) => String(Math.round(score * 1000) / 1000);
        const threshold = column.threshold;
        const hasThreshold = threshold !== null && threshold >= first && threshold <= last;
        const bars = column.bins.map(function (bin) {
            const tall = (bottom - top) * bin.rows / most;
            const isKept = keepsAll || (threshold !== null && bin.start >= threshold);
            return draw("rect", {
                class: isKept ? "bin kept" : "bin", x: x(bin.start) + 0.5, y: bottom - tall,
                width: Math.max(0.5, x(bin.end) - x(bin.start) - 1), height: tall,
            }, draw("title", {}, shown(bin.start) + " to " + shown(bin.end) + ": " + count(bin.rows, "row")));
        });
        const line = hasThreshold ? [
            draw("line", {class: "threshold", x1: x(threshold), x2: x(threshold), y1: top - 6, y2: bottom}),
            draw("text", {x: x(threshold), y: top - 10, "text-anchor": anchor(x(threshold), width)}, "threshold " + shown(threshold)),
        ] : [];
        const label = "Histogram of " + column.column + ": " + count(column.rows, "row") + " from " + shown(first) + " to " + shown(last) +
            (threshold === null ? "" : "; the filter keeps those of at least " + shown(threshold));
        return draw("svg", {class: "histogram", viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": label},
            ...bars, draw("line", {class: "axis", x1: left, x2: width - left, y1: bottom, y2: bottom}),
            draw("text", {x: left, y: bottom + 16}, shown(first)),
            draw("text", {x: width / 2, y: bottom + 16, "text-anchor": "middle"}, shown((first + last) / 2)),
            draw("text", {x: width - left, y: bottom + 16, "text-anchor": "end"}, shown(last)), ...line);
    }

    function anchor(x, width) {
        return x < width / 4 ? "start" : x > 3 * width / 4 ? "end" : "middle";
    }

    function keepRates(column) {
        return make("table", {class: "keep-rates"},
            make("caption", {}, "What a threshold on " + column.column + " alone would keep"),
            make("thead", {}, make("tr", {}, ...["At least", "Rows", "Share"].map((name) => make("th", {scope: "col"}, name)))),
            make("tbody", {}, ...column.bins.map((bin) => make("tr", bin.start === column.threshold ? {class: "chosen"} : {},
                make("th", {scope: "row"}, String(bin.start) + (bin.start === column.threshold ? " (the filter)" : "")),
                make("td", {}, NUMBERS.format(bin.at_least)), make("td", {}, percent(bin.at_least, column.rows))))));
    }

    // ---- Rows to judge ------------------------------------------------------------------------------------------------

    function startRows(root) {
        const button = byId("show-rows");
        const place = byId("rows");
        button.addEventListener("click", async function () {
            button.disabled = true;
            setText(button, "Reading …");
            try {
                place.replaceChildren(...examples(await ask(root.dataset.rows, FILES_PATIENCE_MS)));
            } catch (error) {
                place.replaceChildren(make("p", {class: "run-alert"}, error.message));
            }
            button.disabled = false;
            setText(button, "Show other rows");
        });
    }

    function examples(found) {
        const near = found.threshold === null ? "" : ", near the threshold of " + found.threshold;
        return [make("p", {class: "small-print"}, "By " + found.column + near + ", from the beginning of " + found.shard + "."),
            make("div", {class: "examples"}, ...found.rows.map(exampleRow))];
    }

    /* The URL comes from a crawl, so it is no link. */
    function exampleRow(row) {
        const place = "row " + NUMBERS.format(row.row) + (row.url ? ", " + row.url : "");
        return make("div", {class: "example"},
            make("p", {}, make("strong", {}, row.score.toFixed(3)), " ", make("span", {class: "small-print"}, place)),
            make("blockquote", {}, row.text));
    }

    function duration(seconds) {
        return seconds < 100 ? ROUNDED.format(seconds) + " s"
            : seconds < 6000 ? ROUNDED.format(seconds / 60) + " min" : (seconds / 3600).toFixed(1) + " h";
    }

    // ---- Workers ------------------------------------------------------------------------------------------------------

    function newWorkers(root) {
        const button = byId("all-workers");
        let showsAll = false;
        let last = [];
        const rows = onChange((shown) => byId("workers").tBodies[0].replaceChildren(...shown.map(workerRow)));

        function render() {
            rows(showsAll ? last : last.slice(0, FIRST_WORKERS));
            byId("workers").hidden = last.length === 0;
            byId("no-workers").hidden = last.length > 0;
            byId("more-workers").hidden = last.length <= FIRST_WORKERS;
            setText(button, showsAll ? "Show the first " + FIRST_WORKERS : "Show all " + NUMBERS.format(last.length));
        }

        button.addEventListener("click", function () {
            showsAll = !showsAll;
            render();
        });
        return function (data) {
            last = workersOf(data, root.dataset.run);
            setText(byId("workers-title"), data.workers_in_all > 1 ? NUMBERS.format(data.workers_in_all) + " workers" : "Workers");
            render();
        };
    }

    /* A line for each shard that is leased, those without a report first, and for each worker without a shard. */
    function workersOf(data, run) {
        const live = new Map(data.workers.map((worker) => [worker.name, worker]));
        const held = data.running.map(function (shard) {
            const worker = live.get(shard.worker);
            const device = worker && worker.device || shard.report && shard.report.device;
            const isSilent = shard.seen_seconds > SILENT_SECONDS;
            return {name: shard.worker || "unknown", device: device || "—", doing: worker ? worker.activity : "not seen", held: shard, isSilent};
        });
        held.forEach((shown) => live.delete(shown.name));
        const without = Array.from(live.values()).map(function (worker) {
            const isElsewhere = worker.run_id !== null && worker.run_id !== run;
            return {
                name: worker.name, device: worker.device || "—", doing: worker.activity + (isElsewhere ? " with another run" : ""),
                held: null, isSilent: false,
            };
        });
        return [...held.filter((shown) => shown.isSilent), ...held.filter((shown) => !shown.isSilent), ...without];
    }

    function workerRow(worker) {
        const held = worker.held;
        const report = held && held.report;
        return make("tr", worker.isSilent ? {class: "is-silent"} : {},
            cell("Worker", worker.name, "name"), cell("Device", worker.device), cell("Doing", worker.doing),
            cell("Shard", held ? held.name : "—", "name"),
            cell("Rows of it", held ? NUMBERS.format(held.rows) : "—", "number"),
            cell("Rows/s", report ? ROUNDED.format(report.rows_per_second) : "—", "number"),
            cell("Time goes to", report ? phases(report.seconds) : "—"),
            cell("Device use", report ? deviceUse(report) : "—"),
            cell("Last report", held ? duration(held.seen_seconds) + " ago" : "—", "short"));
    }

    /* For example `91 % device, 6 % tokenize`: the phases with at least 5 % of the attempt's time. */
    function phases(seconds) {
        const whole = Object.values(seconds).reduce((sum, part) => sum + part, 0);
        const shares = Object.entries(seconds).map(([name, part]) => [name, whole ? part / whole : 0]).filter(([, share]) => share >= 0.05)
            .sort((one, other) => other[1] - one[1]);
        return parts(shares.map(([name, share]) => [share, name]));
    }

    /* For example `41 % of peak, 63 % of memory, 97 % busy`. Leaves out unknown shares. */
    function deviceUse(report) {
        return parts([[report.peak_share, "of peak"], [report.memory_share, "of memory"], [report.busy_share, "busy"]]
            .filter(([share]) => share !== null));
    }

    /* Lines break between two shares, not within one. */
    function parts(shares) {
        const told = shares.map(([share, what], number) =>
            make("span", {class: "short"}, Math.round(100 * share) + " % " + what + (number < shares.length - 1 ? "," : "")));
        return told.length ? make("span", {}, ...told.flatMap((part) => [part, " "])) : "—";
    }

    // ---- The page of a run --------------------------------------------------------------------------------------------

    function startRun(root) {
        const workers = newWorkers(root);
        const failures = newFailures(root);
        startRows(root);
        const [next, lines, bar, scores] = [showNext, showLines, showBar, showScores].map(onChange);
        watch(root.dataset.api, function (data) {
            showVerdict(data);
            next(data.next);
            bar(data.counts);
            failures({failures: data.failures, failed: data.counts.failed});
            scores({scores: data.scores, where: data.where});
            workers(data);
            lines(data.lines);
        });
    }

    if (byId("run-page")) {
        startRun(byId("run-page"));
    } else {
        startRuns(byId("runs-page"));
    }
}());
