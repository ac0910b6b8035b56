package dialect

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// field is what a name of an attribute, or of a member of JSON, means to the generic
// reading.
type field uint8

const (
	fieldNone field = iota
	fieldInput
	fieldPrompt // an input that nothing but a model or an agent has
	fieldOutput
	fieldAnswer // an output that nothing but a model or an agent has
	fieldMessages
	fieldSystem
	fieldModel
	fieldResponseModel
	fieldProvider
	fieldAgent
	fieldKind
	fieldToolName
	fieldCallID
	fieldToolInput
	fieldToolOutput
	fieldTools
	fieldInputTokens
	fieldOutputTokens
	fieldTotalTokens
	fieldCacheRead
	fieldCacheWrite
	fieldReasoningTokens
	fieldUsage
	fieldCost
	fieldTemperature
	fieldFinish
	fieldResponseID
	fieldReasoning
	fieldSession
	fieldUser
	fieldError
	fieldRole
	fieldContent
)

// names are the last words of names, in lower case and without separators, and what
// they mean. What is before them is anybody's prefix: acme.llm.inputMessages,
// acme_prompt and agent:final_answer are read by their ends. The longest end counts,
// so that max_tokens is no count of tokens.
var names = map[string]field{
	"input": fieldInput, "inputs": fieldInput, "inputvalue": fieldInput, "inputtext": fieldInput,
	"inputcontent": fieldInput, "inputdata": fieldInput,
	"inputjson": fieldInput, "inputpayload": fieldInput, "outputjson": fieldOutput, "outputpayload": fieldOutput,
	"query": fieldInput, "request": fieldInput, "requestbody": fieldInput, "requestcontent": fieldInput,
	"payload": fieldInput,
	"prompt":  fieldPrompt, "prompts": fieldPrompt, "prompttext": fieldPrompt, "promptcontent": fieldPrompt,
	"promptvalue": fieldPrompt,
	"question":    fieldPrompt, "userinput": fieldPrompt, "usermessage": fieldPrompt, "usermessages": fieldPrompt,
	"userquery": fieldPrompt,
	"usertext":  fieldPrompt, "userquestion": fieldPrompt, "userrequest": fieldPrompt,
	"userutterance": fieldPrompt, "utterance": fieldPrompt,
	"messages": fieldMessages, "inputmessages": fieldMessages, "inputmessage": fieldPrompt,
	"promptmessages": fieldMessages, "chathistory": fieldMessages,
	"requestmessages": fieldMessages, "llmmessages": fieldMessages,
	"output": fieldOutput, "outputs": fieldOutput, "outputvalue": fieldOutput, "outputtext": fieldAnswer,
	"outputcontent": fieldOutput,
	"outputdata":    fieldOutput, "response": fieldOutput, "responses": fieldOutput, "responsetext": fieldOutput,
	"responsecontent": fieldOutput,
	"responsebody":    fieldOutput, "responsemessage": fieldOutput, "responsemessages": fieldOutput,
	"result": fieldOutput, "results": fieldOutput,
	"outputmessages": fieldAnswer, "outputmessage": fieldAnswer, "completion": fieldAnswer,
	"completions": fieldAnswer, "completiontext": fieldAnswer,
	"completioncontent": fieldAnswer, "completionmessage": fieldAnswer, "answer": fieldAnswer,
	"finalanswer": fieldAnswer, "finaloutput": fieldAnswer,
	"reply": fieldAnswer, "generation": fieldAnswer, "generations": fieldAnswer, "generatedtext": fieldAnswer,
	"assistantmessage":  fieldAnswer,
	"assistantresponse": fieldAnswer, "assistanttext": fieldAnswer, "assistantreply": fieldAnswer,
	"agentresponse": fieldAnswer, "modelresponse": fieldAnswer,
	"llmresponse": fieldAnswer, "llmoutput": fieldAnswer, "modeloutput": fieldAnswer,
	"botresponse": fieldAnswer, "botmessage": fieldAnswer,
	"system": fieldNone, "systemprompt": fieldSystem, "systemmessage": fieldSystem,
	"systeminstruction": fieldSystem, "systeminstructions": fieldSystem,
	"instructions": fieldSystem, "agentinstructions": fieldSystem, "preamble": fieldSystem,
	"model": fieldModel, "modelname": fieldModel, "modelid": fieldModel, "requestmodel": fieldModel,
	"llmmodel": fieldModel, "responsemodel": fieldResponseModel,
	"responsemodelname": fieldResponseModel, "modelprovider": fieldProvider, "llmprovider": fieldProvider,
	"providername": fieldProvider, "provider": fieldProvider,
	"vendor": fieldProvider, "llmsystem": fieldProvider,
	"agentname": fieldAgent, "agent": fieldAgent, "assistantname": fieldAgent, "botname": fieldAgent,
	"kind": fieldKind, "type": fieldKind, "spankind": fieldKind, "spantype": fieldKind, "runtype": fieldKind,
	"operationname": fieldKind, "operation": fieldKind,
	"toolname": fieldToolName, "tool": fieldToolName, "functionname": fieldToolName, "tooltitle": fieldToolName,
	"toolcallname": fieldToolName, "toolid": fieldNone,
	"callid": fieldCallID, "toolcallid": fieldCallID, "tooluseid": fieldCallID, "functioncallid": fieldCallID,
	"toolinput": fieldToolInput, "toolargs": fieldToolInput, "toolarguments": fieldToolInput,
	"toolparameters": fieldNone, "functionarguments": fieldToolInput,
	"functionargs": fieldToolInput, "callarguments": fieldToolInput, "callargs": fieldToolInput,
	"arguments": fieldToolInput, "args": fieldToolInput,
	"toolparams": fieldToolInput, "toolcallarguments": fieldToolInput,
	"tooloutput": fieldToolOutput, "toolresult": fieldToolOutput, "toolresponse": fieldToolOutput,
	"functionresult": fieldToolOutput,
	"functionoutput": fieldToolOutput, "callresult": fieldToolOutput, "functionresponse": fieldToolOutput,
	"observation": fieldToolOutput,
	"tools":       fieldTools, "toolcatalog": fieldTools, "tooldefinitions": fieldTools,
	"availabletools": fieldTools, "functions": fieldTools,
	"prompttokens": fieldInputTokens, "inputtokens": fieldInputTokens, "tokensinput": fieldInputTokens,
	"tokensprompt": fieldInputTokens,
	"tokensin":     fieldInputTokens, "inputtokencount": fieldInputTokens, "prompttokencount": fieldInputTokens,
	"tokencountprompt": fieldInputTokens,
	"tokencountinput":  fieldInputTokens, "usageinput": fieldInputTokens, "usageprompt": fieldInputTokens,
	"numinputtokens":   fieldInputTokens,
	"completiontokens": fieldOutputTokens, "outputtokens": fieldOutputTokens,
	"tokensoutput": fieldOutputTokens, "tokenscompletion": fieldOutputTokens,
	"tokensout": fieldOutputTokens, "outputtokencount": fieldOutputTokens,
	"completiontokencount": fieldOutputTokens, "candidatestokencount": fieldOutputTokens,
	"tokencountcompletion": fieldOutputTokens, "tokencountoutput": fieldOutputTokens,
	"usageoutput": fieldOutputTokens, "usagecompletion": fieldOutputTokens,
	"generatedtokens": fieldOutputTokens, "numoutputtokens": fieldOutputTokens,
	"totaltokens": fieldTotalTokens, "tokenstotal": fieldTotalTokens, "totaltokencount": fieldTotalTokens,
	"usagetotal":   fieldTotalTokens,
	"cachedtokens": fieldCacheRead, "cachereadtokens": fieldCacheRead, "cachedinputtokens": fieldCacheRead,
	"cachereadinputtokens": fieldCacheRead,
	"inputcachedtokens":    fieldCacheRead, "cacheread": fieldCacheRead,
	"cachedcontenttokencount": fieldCacheRead, "cachedprompttokens": fieldCacheRead,
	"cachehittokens":   fieldCacheRead,
	"cachewritetokens": fieldCacheWrite, "cachecreationtokens": fieldCacheWrite,
	"cachecreationinputtokens": fieldCacheWrite, "cachewrite": fieldCacheWrite,
	"cachewriteinputtokens": fieldCacheWrite, "cachecreation": fieldCacheWrite,
	"reasoningtokens": fieldReasoningTokens, "outputreasoningtokens": fieldReasoningTokens,
	"reasoningoutputtokens": fieldReasoningTokens,
	"thinkingtokens":        fieldReasoningTokens, "thoughtstokencount": fieldReasoningTokens,
	"tokensreasoning": fieldReasoningTokens,
	"usage":           fieldUsage, "usagedetails": fieldUsage, "tokenusage": fieldUsage, "usagemetadata": fieldUsage,
	"tokencounts": fieldUsage, "llmusage": fieldUsage, "metrics": fieldUsage,
	"maxtokens": fieldNone, "maxoutputtokens": fieldNone, "maxinputtokens": fieldNone,
	"maxcompletiontokens": fieldNone,
	"costusd":             fieldCost, "totalcost": fieldCost, "costtotal": fieldCost, "totalcostusd": fieldCost,
	"usagecost": fieldCost, "llmcost": fieldCost,
	"temperature":  fieldTemperature,
	"finishreason": fieldFinish, "finishreasons": fieldFinish, "stopreason": fieldFinish,
	"responseid": fieldResponseID, "completionid": fieldResponseID, "generationid": fieldResponseID,
	"reasoning": fieldReasoning, "reasoningtext": fieldReasoning, "reasoningcontent": fieldReasoning,
	"thinking": fieldReasoning, "thoughts": fieldReasoning,
	"sessionid": fieldSession, "conversationid": fieldSession, "threadid": fieldSession,
	"chatid": fieldSession, "dialogid": fieldSession, "dialogueid": fieldSession,
	"chatsessionid": fieldSession,
	"userid":        fieldUser, "enduserid": fieldUser,
	"errormessage": fieldError, "statusmessage": fieldError,
	"role": fieldRole, "messagerole": fieldRole,
	"content": fieldContent, "messagecontent": fieldContent, "text": fieldContent, "messagetext": fieldContent,
}

// ordinaryFamilies are the first words of the attributes that programs have which are
// no agents: what is below them is none of a conversation, whatever its last word.
var ordinaryFamilies = []string{
	"http", "url", "db", "rpc", "messaging", "net", "network", "server", "client", "source", "destination", "k8s",
	"container", "faas", "aws", "azure", "az", "cloud", "host", "process", "thread", "code", "exception",
	"graphql", "browser", "user_agent", "peer", "dns", "tls", "feature_flag", "cassandra", "mongodb", "redis",
	"elasticsearch", "opensearch", "kafka", "rabbitmq", "signalr", "aspnetcore", "dotnet", "jvm", "nodejs",
	"v8js", "system", "otel", "telemetry", "service", "cicd", "vcs", "deployment", "device", "disk", "geo", "log",
	"os", "webengine", "grpc", "sql", "istio", "envoy", "nginx", "spring", "servlet", "express", "fastify",
	"nextjs", "next", "django", "flask", "rails", "celery", "sidekiq", "job", "cron", "pod", "node", "busy_ns",
	"idle_ns", "prisma", "hikaricp", "jdbc", "s3", "sqs", "dynamodb", "kubernetes", "sentry", "datadog", "dd",
	"ot", "android", "ios", "cpu", "file", "test", "hw", "zipkin", "jaeger",
}

// family returns the first word of a key, or "" when nothing parts it from a rest.
func family(key string) string {
	if i := strings.IndexAny(key, ".:"); i > 0 {
		return key[:i]
	}
	return ""
}

// isOrdinary reports whether a key is of a program that is no agent. A key with an
// underscore belongs to the family before that too: db_statement, http_request.
func isOrdinary(key string) bool {
	if f := family(key); f != "" {
		return families[f] == MarkOrdinary
	}
	if i := strings.IndexByte(key, '_'); i > 0 {
		switch key[:i] {
		case "http", "db", "sql", "rpc", "grpc", "url", "net", "k8s", "aws", "kafka", "redis":
			return true
		}
	}
	return false
}

// wordBytes is how much of a name counts: its end.
const wordBytes = 96

// words is a name in lower case without separators, and where its words begin. Making
// one allocates nothing, for every name is looked at of what no dialect knows.
type words struct {
	text   [wordBytes]byte
	begins [wordBytes]uint8
	n, len int
}

func (w *words) read(name string) {
	if len(name) > wordBytes {
		name = name[len(name)-wordBytes:]
	}
	before := byte('.')
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case c == '.' || c == ':' || c == '_' || c == '-' || c == '/' || c == ' ':
			before = '.'
			continue
		case before == '.', c >= 'A' && c <= 'Z' && (before < 'A' || before > 'Z'):
			w.begins[w.len] = uint8(w.n)
			w.len++
		}
		before = c
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		w.text[w.n] = c
		w.n++
	}
}

// fieldOf returns what a name means by the longest of its ends that means anything.
func fieldOf(name string) field {
	const maxWords = 4
	var w words
	w.read(name)
	for from := max(0, w.len-maxWords); from < w.len; from++ {
		if f, known := names[string(w.text[w.begins[from]:w.n])]; known {
			return f
		}
	}
	return fieldNone
}

// genericKind returns the kind of span that a client calls by a word.
func genericKind(word string) genericSpanKind {
	if len(word) > 40 {
		return kindUnknown
	}
	var w words
	w.read(strings.Trim(word, `"`)) // some write every value as JSON
	return genericKinds[string(w.text[:w.n])]
}

// genericSpanKind is a kind of span. Of several that a span's attributes name, the
// greatest tells most.
type genericSpanKind uint8

const (
	kindUnknown genericSpanKind = iota
	kindAgent
	kindChain
	kindOther // of an agent, and none of the others
	kindTool
	kindModel
)

var genericKinds = map[string]genericSpanKind{
	"llm": kindModel, "generation": kindModel, "chatmodel": kindModel, "chat": kindModel,
	"completion": kindModel, "chatcompletion": kindModel,
	"textcompletion": kindModel, "llmcall": kindModel, "modelcall": kindModel, "model": kindModel,
	"inference": kindModel, "generate": kindModel,
	"generatetext": kindModel, "streamtext": kindModel, "modelgeneration": kindModel,
	"modelinvocation": kindModel, "prompt": kindModel,
	"tool": kindTool, "toolcall": kindTool, "function": kindTool, "functioncall": kindTool,
	"tooluse": kindTool, "toolexecution": kindTool, "executetool": kindTool,
	"agent": kindAgent, "agentrun": kindAgent, "invokeagent": kindAgent, "assistant": kindAgent,
	"turn": kindAgent, "conversation": kindAgent, "workflow": kindAgent,
	"workflowrun": kindAgent, "agentturn": kindAgent, "crew": kindAgent,
	"chain": kindChain, "task": kindChain, "graph": kindChain, "run": kindChain, "trace": kindChain,
	"pipeline": kindChain, "workflowstep": kindChain,
	"retriever": kindOther, "embedding": kindOther, "embeddings": kindOther, "memory": kindOther,
	"guardrail": kindOther, "evaluator": kindOther, "rerank": kindOther,
	"reranker": kindOther, "vectorstore": kindOther, "retrieval": kindOther,
}

// holdsText reports whether a value has something in it.
func holdsText(v pcommon.Value) bool {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return strings.TrimSpace(v.Str()) != ""
	case pcommon.ValueTypeMap:
		return v.Map().Len() > 0
	case pcommon.ValueTypeSlice:
		return v.Slice().Len() > 0
	}
	return false
}
