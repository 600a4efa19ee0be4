-- Health of a TrainingJob for Argo CD: resource.customizations.health.everstep.dev_TrainingJob in
-- argocd-cm. It is given obj, the object, and returns a status and a message.
local function health(status, message)
  return {status = status, message = message or ""}
end

local status = obj.status
if status == nil or status.conditions == nil then
  return health("Progressing", "the operator has not seen it yet")
end
if status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "the operator has not seen the newest change yet")
end

local conditions = {}
for _, condition in ipairs(status.conditions) do
  conditions[condition.type] = condition
end
local function is(type, value)
  return conditions[type] ~= nil and conditions[type].status == value
end

if is("Failed", "True") then
  return health("Degraded", status.message)
elseif is("Succeeded", "True") then
  return health("Healthy", status.message)
elseif is("Suspended", "True") then
  return health("Suspended", "spec.suspend is true")
elseif is("CheckpointHealthy", "False") then
  -- It trains, but what a failure would cost grows.
  return health("Degraded", conditions["CheckpointHealthy"].message)
elseif is("Running", "True") then
  return health("Healthy", status.message)
elseif is("Recovering", "True") then
  return health("Progressing", "recovers from a failure")
end
return health("Progressing", status.message)
