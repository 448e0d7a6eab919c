"""Sets up each tracing library as its documentation says, and keeps what it records in memory.

Each library has a class: `__init__` sets it up, `client` and `query` are what a program uses, `collect` returns the
spans as plain data. The library's own telemetry is off, and it has no key.
"""

import importlib
import json
import os


class Traced:
    """A library that patches the SDK in place: the program uses the SDK's own client and query."""

    def client(self, sdk, options):
        return sdk.ClaudeSDKClient(options)

    def query(self, sdk, **given):
        return sdk.query(**given)

    def collect(self):
        raise NotImplementedError


class OpenTelemetry(Traced):
    """A library whose spans, metrics and log records go to OpenTelemetry."""

    def __init__(self, module):
        from opentelemetry import _logs, metrics, trace
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs import export as log_export
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self.exporter = InMemorySpanExporter()
        self.processor = SimpleSpanProcessor(self.exporter)
        self.reader = InMemoryMetricReader()
        memory = getattr(log_export, "InMemoryLogRecordExporter", None) or log_export.InMemoryLogExporter
        self.records = memory()
        if self.sets_providers:
            provider = TracerProvider()
            provider.add_span_processor(self.processor)
            trace.set_tracer_provider(provider)
            metrics.set_meter_provider(MeterProvider([self.reader]))
            loggers = LoggerProvider()
            loggers.add_log_record_processor(log_export.SimpleLogRecordProcessor(self.records))
            _logs.set_logger_provider(loggers)
        self.set_up(module)

    sets_providers = True

    def set_up(self, module):
        raise NotImplementedError

    def collect(self):
        return [
            *map(_span, self.exporter.get_finished_spans()),
            *_metrics(self.reader.get_metrics_data() if self.sets_providers else None),
            *map(_record, self.records.get_finished_logs()),
        ]


class Logfire(OpenTelemetry):
    sets_providers = False

    def set_up(self, module):
        import logfire

        logfire.configure(
            send_to_logfire=False,
            console=False,
            inspect_arguments=False,
            additional_span_processors=[self.processor],
        )
        logfire.instrument_claude_agent_sdk()


class OpenInference(OpenTelemetry):
    def set_up(self, module):
        from openinference.instrumentation.claude_agent_sdk import ClaudeAgentSDKInstrumentor

        ClaudeAgentSDKInstrumentor().instrument()


class OtelInstrumentation(OpenTelemetry):
    """`otel-instrumentation-claude-agent-sdk`."""

    def set_up(self, module):
        from opentelemetry.instrumentation.claude_agent_sdk import ClaudeAgentSdkInstrumentor

        ClaudeAgentSdkInstrumentor().instrument(capture_content=True)


class OpenLIT(OpenTelemetry):
    def set_up(self, module):
        from openlit._config import OpenlitConfig
        from openlit.instrumentation.claude_agent_sdk import ClaudeAgentSDKInstrumentor

        OpenlitConfig.reset_to_defaults()
        ClaudeAgentSDKInstrumentor().instrument(capture_message_content=True, disable_metrics=True)


class TraceAI(OpenTelemetry):
    def set_up(self, module):
        from opentelemetry import trace
        from traceai_claude_agent_sdk import ClaudeAgentInstrumentor, _client_wrapper, _instrumentor

        if module == "claude_agent_sdk":
            ClaudeAgentInstrumentor().instrument()
        else:
            sdk = importlib.import_module(module)
            tracer = trace.get_tracer(_instrumentor.__name__)
            sdk.ClaudeSDKClient = _client_wrapper.wrap_claude_sdk_client(sdk.ClaudeSDKClient, tracer)


class LangSmith(Traced):
    """LangSmith, whose runs are taken from the HTTP session of its client."""

    def __init__(self, module):
        import langsmith
        import requests
        from langsmith.integrations import claude_agent_sdk as integration

        os.environ["LANGSMITH_TRACING"] = "true"
        sent = self.sent = []

        class Kept(requests.adapters.BaseAdapter):
            def send(self, request, **_):
                sent.append((request.method, request.url, request.body))
                made = requests.Response()
                made.status_code, made.request, made.url, made._content = 202, request, request.url, b"{}"
                return made

            def close(self):
                pass

        session = requests.Session()
        langsmith.configure(
            client=langsmith.Client(
                api_url="http://127.0.0.1:9",
                api_key="none",
                session=session,
                auto_batch_tracing=False,
                info={},
            ),
            enabled=True,
        )
        session.mount("http://", Kept())
        session.mount("https://", Kept())
        if module == "claude_agent_sdk":
            assert integration.configure_claude_agent_sdk(project_name="tests")
        else:  # the functions that the one above calls, with the classes of the other import
            from langsmith.integrations.claude_agent_sdk._config import set_tracing_config

            sdk = importlib.import_module(module)
            set_tracing_config(project_name="tests")
            integration.instrument_claude_client(sdk.ClaudeSDKClient)
            integration.instrument_sdk_mcp_tool(sdk.SdkMcpTool)

    def collect(self):
        runs = {}
        for _, url, body in self.sent:
            if not body:
                continue
            sent = json.loads(body)
            run = runs.setdefault(sent.get("id") or url.rpartition("/")[2], {})
            run.update({name: value for name, value in sent.items() if value is not None})
        return [
            {
                "id": run["id"],
                "parent": run.get("parent_run_id"),
                "start": run.get("start_time"),
                "name": run.get("name"),
                "kind": run.get("run_type"),
                "status": run.get("error"),
                "attributes": {name: run.get(name) for name in ("inputs", "outputs", "extra", "tags")},
                "events": run.get("events"),
            }
            for run in runs.values()
        ]


class Braintrust(Traced):
    def __init__(self, module):
        from braintrust import logger
        from braintrust.integrations.claude_agent_sdk import setup_claude_agent_sdk
        from braintrust.test_helpers import init_test_logger

        os.environ["BRAINTRUST_APP_URL"] = "http://127.0.0.1:9"
        self._memory = logger._internal_with_memory_background_logger()
        self.logger = self._memory.__enter__()
        init_test_logger("tests")
        assert setup_claude_agent_sdk(project="tests", api_key=logger.TEST_API_KEY)

    def collect(self):
        return [
            {
                "id": row["span_id"],
                "parent": (row.get("span_parents") or [None])[0],
                "start": row.get("metrics", {}).get("start"),
                "name": row["span_attributes"]["name"],
                "kind": row["span_attributes"].get("type"),
                "status": row.get("error"),
                "attributes": {
                    name: row.get(name) for name in ("input", "output", "metadata", "metrics", "tags")
                },
                "events": None,
            }
            for row in self.logger.pop()
        ]


class PostHog(Traced):
    """PostHog, with a client and a query of its own, which use the official names."""

    def __init__(self, module):
        from posthog import Posthog
        from posthog.ai.claude_agent_sdk import PostHogClaudeSDKClient, instrument

        self.kept = []
        self.posthog = Posthog(
            "phc_none", host="http://127.0.0.1:9", sync_mode=True, before_send=self.keep, disable_geoip=True
        )
        self.client_class = PostHogClaudeSDKClient
        self.processor = instrument(client=self.posthog, distinct_id="tests")

    def keep(self, event):
        self.kept.append(event)

    def client(self, sdk, options):
        return self.client_class(options, posthog_client=self.posthog, posthog_distinct_id="tests")

    def query(self, sdk, **given):
        return self.processor.query(**given)

    def collect(self):
        return [
            {
                "id": each["properties"].get("$ai_span_id"),
                "parent": each["properties"].get("$ai_parent_id"),
                "start": str(each.get("timestamp")),
                "name": each["event"],
                "kind": None,
                "status": None,
                "attributes": {
                    name: value for name, value in each["properties"].items() if not name.startswith("$lib")
                },
                "events": None,
            }
            for each in self.kept
        ]


LIBRARIES = {
    "logfire": Logfire,
    "openinference": OpenInference,
    "otel-instrumentation": OtelInstrumentation,
    "langsmith": LangSmith,
    "openlit": OpenLIT,
    "traceai": TraceAI,
    "braintrust": Braintrust,
    "posthog": PostHog,
}
BY_IMPORT_CHANGE = ("langsmith", "traceai")
"""Libraries with a function that takes the class to trace; the others patch the official name only."""


def _span(span):
    return {
        "id": f"{span.context.span_id:016x}",
        "parent": f"{span.parent.span_id:016x}" if span.parent else None,
        "start": span.start_time,
        "name": span.name,
        "kind": span.kind.name,
        "scope": span.instrumentation_scope.name,
        "status": [span.status.status_code.name, span.status.description],
        "attributes": dict(span.attributes or {}),
        "events": [{"name": event.name, "attributes": dict(event.attributes or {})} for event in span.events],
    }


def _metrics(data):
    """Yield sums and counts of every metric: token counts are among them."""
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    tokens = "token" in metric.name
                    yield {
                        "id": None,
                        "parent": None,
                        "start": 0,
                        "name": f"metric {metric.name}",
                        "kind": metric.unit,
                        "scope": scope.scope.name,
                        "status": None,
                        "attributes": {
                            **dict(point.attributes),
                            "count": getattr(point, "count", None),
                            "sum": (getattr(point, "sum", None) if tokens else "..."),
                        },
                        "events": None,
                    }


def _record(data):
    record = data.log_record
    return {
        "id": None,
        "parent": f"{record.span_id:016x}" if record.span_id else None,
        "start": record.timestamp,
        "name": f"log {getattr(record, 'event_name', None)}",
        "kind": None,
        "status": None,
        "attributes": {**dict(record.attributes or {}), "body": record.body},
        "events": None,
    }
