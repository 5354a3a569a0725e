/* The Runs page: it asks for JSON every two seconds and shows it. Names and errors come from anywhere, so data only ever
   becomes text: nothing here writes HTML. */
(function () {
    "use strict";

    const EVERY_MS = 2000;
    const PATIENCE_MS = 10000;
    const FILES_PATIENCE_MS = 120000;
    const FIRST_WORKERS = 50;
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

    /* Calls `render` if the data differs from that of the last call, so that focus and open parts stay as they are. */
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
            cell("Rows/s", ROUNDED.format(run.rows_per_second), "number"),
            cell("Left", run.time_left || "—", "short"));
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
        setText(byId("speed"), ROUNDED.format(data.rows_per_second));
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

    // ---- The strip ----------------------------------------------------------------------------------------------------

    /* The state that a person looks for first. A cell of several shards is done when all of them are. */
    function stateOf(part) {
        const state = ["failed", "running", "queued", "done"].find((one) => part[one]);
        return state === "queued" && part.done ? "part" : state;
    }

    function sizeOf(part) {
        return STATES.reduce((sum, state) => sum + (part[state] || 0), 0);
    }

    function describe(part, running) {
        if (part.first !== part.last) {
            const told = STATES.filter((state) => part[state]).map((state) => NUMBERS.format(part[state]) + " " + state);
            return part.first + " to " + part.last + ": " + told.join(", ");
        }
        const held = running.get(part.first);
        const state = stateOf(part);
        return part.first + ": " + (held ? "running on " + held.worker + ", " + count(held.rows, "row") + " so far" + speedOf(held) : state);
    }

    function speedOf(held) {
        return held.report ? ", " + ROUNDED.format(held.report.rows_per_second) + " rows/s" : "";
    }

    function newStrip(onOpen) {
        const strip = byId("strip");
        const hover = byId("hover");
        let parts = [];
        let running = new Map();
        let active = -1;

        function show(data) {
            parts = data.strip.cells || [];
            running = new Map(data.running.map((shard) => [shard.name, shard]));
            strip.classList.toggle("dense", parts.length > 400);
            if (strip.children.length !== parts.length) {
                strip.replaceChildren(...parts.map((part, number) => make("div", {role: "option", id: "cell-" + number, "aria-selected": "false"})));
            }
            parts.forEach((part, number) => update(strip.children[number], part));
            if (active >= 0 && active < parts.length) {
                setText(hover, describe(parts[active], running));
            }
            setText(byId("strip-help"), (data.strip.shards_per_cell > 1
                ? "A cell is " + NUMBERS.format(data.strip.shards_per_cell) + " shards, in name order; it is filled as far as they are done. "
                : "A cell is a shard, in name order. ") +
                "Point at one to see what it does; click it, or use the arrow keys and Enter, to see its attempts and errors.");
        }

        function update(element, part) {
            const name = "cell state-" + stateOf(part);
            if (element.className.replace(" is-active", "") !== name) {
                element.className = name;
            }
            const share = Math.round(100 * (part.done || 0) / sizeOf(part)) + "%";
            if (element.style.getPropertyValue("--done") !== share) {
                element.style.setProperty("--done", share);
            }
            const label = describe(part, running);
            if (element.getAttribute("aria-label") !== label) {
                element.setAttribute("aria-label", label);
            }
        }

        function activate(number) {
            if (!parts.length) {
                return;
            }
            const before = strip.children[active];
            if (before) {
                before.classList.remove("is-active");
                before.setAttribute("aria-selected", "false");
            }
            active = Math.max(0, Math.min(parts.length - 1, number));
            const now = strip.children[active];
            now.classList.add("is-active");
            now.setAttribute("aria-selected", "true");
            strip.setAttribute("aria-activedescendant", now.id);
            setText(hover, describe(parts[active], running));
        }

        function perRow() {
            const top = strip.children[0].offsetTop;
            const row = Array.from(strip.children).findIndex((element) => element.offsetTop !== top);
            return row < 0 ? parts.length : row;
        }

        function numberOf(event) {
            const element = event.target.closest(".cell");
            return element ? Array.prototype.indexOf.call(strip.children, element) : -1;
        }

        strip.addEventListener("pointerover", function (event) {
            const number = numberOf(event);
            if (number >= 0) {
                activate(number);
            }
        });
        strip.addEventListener("click", function (event) {
            const number = numberOf(event);
            if (number >= 0) {
                activate(number);
                onOpen(parts[number]);
            }
        });
        strip.addEventListener("keydown", function (event) {
            if (!parts.length) {
                return;
            }
            const to = {
                ArrowRight: active + 1, ArrowLeft: active - 1, Home: 0, End: parts.length - 1,
                ArrowDown: active + perRow(), ArrowUp: active - perRow(),
            }[event.key];
            if (to !== undefined) {
                event.preventDefault();
                activate(to);
            } else if ((event.key === "Enter" || event.key === " ") && active >= 0) {
                event.preventDefault();
                onOpen(parts[active]);
            }
        });
        return {show};
    }

    // ---- The shards of a cell -----------------------------------------------------------------------------------------

    function newDetails(root) {
        const place = byId("details");
        const opened = new Set();
        let shown = null; // the cell, as the strip had it

        async function open(part) {
            shown = part;
            const query = new URLSearchParams({first: part.first, last: part.last});
            const title = part.first === part.last ? "Shard " + part.first : "Shards " + part.first + " to " + part.last;
            const close = make("button", {type: "button", class: "small-button"}, "Close");
            close.addEventListener("click", function () {
                shown = null;
                place.replaceChildren();
                byId("strip").focus();
            });
            const head = make("div", {class: "details-head"}, make("h3", {}, title), close);
            let shards;
            try {
                shards = (await ask(root.dataset.shards + "?" + query)).shards;
            } catch (error) {
                place.replaceChildren(head, make("p", {class: "run-alert"}, error.message));
                return;
            }
            if (shown !== part) { // closed meanwhile, or another one is open
                return;
            }
            const left_out = sizeOf(part) - shards.length;
            place.replaceChildren(head, ...shards.map((shard) => oneShard(shard, part.first !== part.last, opened)),
                ...(left_out > 0 ? [make("p", {class: "small-print"}, "And " + count(left_out, "shard") + " more.")] : []));
        }

        /* Ask again if the cell has changed, or may have, unless the keyboard is in its details. */
        function refresh(parts) {
            const now = shown && parts.find((part) => part.first === shown.first);
            if (now && !place.contains(document.activeElement) && (now.running || JSON.stringify(now) !== JSON.stringify(shown))) {
                open(now);
            }
        }

        return {open, refresh};
    }

    function oneShard(shard, isNamed, opened) {
        return make("article", {class: "shard"},
            isNamed ? make("h4", {}, shard.name) : null,
            make("p", {}, make("span", {class: "cell state-" + shard.state, "aria-hidden": "true"}), " " + shard.state + whatItDid(shard)),
            shard.error ? make("p", {class: "shard-error"}, (shard.state === "failed" ? "" : "An earlier attempt ended: ") + shard.error) : null,
            shard.traceback ? traceback(shard.traceback, "cell " + shard.name, opened) : null);
    }

    function whatItDid(shard) {
        const made = shard.receipt;
        if (made) {
            const speed = made.seconds > 0 ? ", " + ROUNDED.format(made.rows_in / made.seconds) + " rows/s" : "";
            return ": " + count(made.rows_in, "row") + " in " + ROUNDED.format(made.seconds) + " s" + speed + " on " + made.worker +
                " (" + made.device + ", attempt " + made.attempt + "); " + NUMBERS.format(made.rows_kept) + " kept, " +
                NUMBERS.format(made.rows_dropped) + " dropped, " + NUMBERS.format(made.rows_errored) + " errored";
        }
        const held = shard.worker ? " on " + shard.worker + ", " + count(shard.rows, "row") + " so far" : "";
        const errors = shard.errors ? ", " + count(shard.errors, "error") + " that may go away" : "";
        const tried = shard.attempts ? "; attempt " + NUMBERS.format(shard.attempts) + errors : "; never tried";
        return held + tried;
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
        setText(byId("scores-of"), scores.length === 0 ? "No row has a score yet."
            : where ? "The filter keeps rows with " + where + "." : "Every row is kept.");
        byId("scores").replaceChildren(...scores.map(scoreColumn));
    }

    function scoreColumn(column) {
        return make("article", {class: "scores"}, make("h3", {}, column.column), histogram(column), keepRates(column));
    }

    function histogram(column) {
        const width = 360, height = 190, left = 8, bottom = 160, top = 22;
        const first = column.bins[0].from;
        const last = column.bins[column.bins.length - 1].from + column.bin_width;
        const most = Math.max(...column.bins.map((bin) => bin.rows));
        const x = (score) => left + (width - 2 * left) * (score - first) / (last - first);
        const shown = (score) => String(Math.round(score * 1000) / 1000);
        const threshold = column.threshold;
        const hasThreshold = threshold !== null && threshold >= first && threshold <= last;
        const bars = column.bins.map(function (bin) {
            const tall = (bottom - top) * bin.rows / most;
            const isKept = threshold === null || bin.from >= threshold;
            return draw("rect", {
                class: isKept ? "bin kept" : "bin", x: x(bin.from) + 0.5, y: bottom - tall,
                width: Math.max(0.5, x(bin.from + column.bin_width) - x(bin.from) - 1), height: tall,
            }, draw("title", {}, shown(bin.from) + " to " + shown(bin.from + column.bin_width) + ": " + count(bin.rows, "row")));
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
            make("caption", {}, "What a threshold would keep"),
            make("thead", {}, make("tr", {}, ...["At least", "Rows", "Share"].map((name) => make("th", {scope: "col"}, name)))),
            make("tbody", {}, ...column.keep_rates.map((rate) => make("tr", rate.threshold === column.threshold ? {class: "chosen"} : {},
                make("th", {scope: "row"}, String(rate.threshold) + (rate.threshold === column.threshold ? " (the filter)" : "")),
                make("td", {}, NUMBERS.format(rate.rows)), make("td", {}, percent(rate.rows, column.rows))))));
    }

    // ---- Rows to judge ------------------------------------------------------------------------------------------------

    function startRows(root) {
        const button = byId("show-rows");
        const place = byId("rows");
        button.addEventListener("click", async function () {
            button.disabled = true;
            setText(button, "Reading …");
            try {
                const seed = Math.floor(Math.random() * 1e9);
                place.replaceChildren(...examples(await ask(root.dataset.rows + "?seed=" + seed, FILES_PATIENCE_MS)));
            } catch (error) {
                place.replaceChildren(make("p", {class: "run-alert"}, error.message));
            }
            button.disabled = false;
            setText(button, "Show other rows");
        });
    }

    function examples(found) {
        const kinds = [
            ["Near the threshold" + (found.threshold === null ? "" : " of " + found.threshold), found.near],
            ["Kept", found.kept], ["Dropped", found.dropped],
        ].filter(([, rows]) => rows.length > 0);
        return [make("p", {class: "small-print"}, "Of the first " + count(found.rows, "row") + " of " + found.shard + "."),
            make("div", {class: "examples"}, ...kinds.map(
                ([title, rows]) => make("article", {class: "shard"}, make("h3", {}, title), ...rows.map(exampleRow))))];
    }

    /* The URL comes from a crawl, so it is no link. */
    function exampleRow(row) {
        const place = "row " + NUMBERS.format(row.row) + (row.url ? ", " + row.url : "");
        return make("div", {class: "example"},
            make("p", {}, make("strong", {}, row.score.toFixed(3)), " ", make("span", {class: "small-print"}, place)),
            make("blockquote", {}, row.text));
    }

    // ---- Throughput ---------------------------------------------------------------------------------------------------

    function showThroughput({history, isOpen}) {
        const points = isOpen ? history.slice(0, -1) : history; // the last stretch goes on, and has not all its rows
        byId("throughput-card").hidden = points.length < 2;
        if (points.length < 2) {
            return;
        }
        const width = 720, height = 150, left = 8, bottom = 118, top = 28;
        const end = Math.max(...points.map((point) => point.at_seconds + point.seconds));
        const most = Math.max(1, ...points.map((point) => point.rows_per_second));
        const x = (seconds) => left + (width - 2 * left) * seconds / end;
        const bars = points.map(function (point) {
            const tall = (bottom - top) * point.rows_per_second / most;
            const told = duration(point.at_seconds) + " after the start: " + ROUNDED.format(point.rows_per_second) + " rows/s, " +
                NUMBERS.format(point.running) + " running, " + NUMBERS.format(point.done) + " done, " + NUMBERS.format(point.failed) + " failed";
            return draw("rect", {
                class: "bin pace", x: x(point.at_seconds), y: bottom - tall,
                width: Math.max(0.5, x(point.seconds) - left - 0.5), height: tall,
            }, draw("title", {}, told));
        });
        byId("throughput").replaceChildren(draw("svg",
            {class: "histogram wide", viewBox: "0 0 " + width + " " + height, role: "img",
                "aria-label": "Rows a second over " + duration(end) + ", at most " + ROUNDED.format(most)},
            ...bars, draw("line", {class: "axis", x1: left, x2: width - left, y1: bottom, y2: bottom}),
            draw("text", {x: left, y: 18}, "at most " + ROUNDED.format(most) + " rows/s"),
            draw("text", {x: left, y: bottom + 22}, "start"),
            draw("text", {x: width - left, y: bottom + 22, "text-anchor": "end"}, duration(end))));
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

    /* Those that hold a shard and are silent come first: their shards wait for the end of a lease. */
    function workersOf(data, run) {
        const held = new Map(data.running.map((shard) => [shard.worker, shard]));
        const live = data.workers.map(function (worker) {
            const shard = held.get(worker.name);
            held.delete(worker.name);
            const isElsewhere = worker.run_id !== null && worker.run_id !== run;
            return {
                name: worker.name, device: worker.device || "—", doing: worker.activity + (isElsewhere ? " with another run" : ""),
                held: shard || null, isSilent: false,
            };
        });
        const isWhole = data.workers_in_all === data.workers.length;
        const silent = isWhole ? Array.from(held.values()).map((shard) => ({
            name: shard.worker || "unknown", device: shard.report ? shard.report.device : "—", doing: "silent", held: shard, isSilent: true,
        })) : [];
        return silent.concat(live);
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
            cell("Last seen", worker.isSilent ? duration(held.seen_seconds) + " ago" : "now", "short"));
    }

    /* For example `91 % device, 6 % tokenize`: the phases with at least 5 % of the attempt's time. */
    function phases(seconds) {
        const whole = Object.values(seconds).reduce((sum, part) => sum + part, 0);
        const shares = Object.entries(seconds).map(([name, part]) => [name, whole ? part / whole : 0]).filter(([, share]) => share >= 0.05)
            .sort((one, other) => other[1] - one[1]);
        return parts(shares.map(([name, share]) => [share, name]));
    }

    /* For example `41 % of peak, 63 % of memory, 97 % busy`: what is known. */
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
        const details = newDetails(root);
        const strip = newStrip(details.open);
        const workers = newWorkers(root);
        const failures = newFailures(root);
        startRows(root);
        const [next, lines, bar, scores, throughput] = [showNext, showLines, showBar, showScores, showThroughput].map(onChange);
        watch(root.dataset.api, function (data) {
            showVerdict(data);
            next(data.next);
            bar(data.counts);
            strip.show(data);
            details.refresh(data.strip.cells);
            failures({failures: data.failures, failed: data.counts.failed});
            scores({scores: data.scores, where: data.where});
            throughput({history: data.throughput, isOpen: data.counts.queued + data.counts.running > 0});
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
