# A Container App in front of PostgreSQL flexible server, both in one private network. Not applied by us: the
# provider is not to be had where the project is built, so these files are held against its schema (tests/deploy).

terraform {
  required_version = ">= 1.6"
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = "~> 4.0"
    }
  }
}

provider "azurerm" {
  features {}
  subscription_id = var.subscription
}

data "azurerm_client_config" "me" {}

resource "azurerm_resource_group" "this" {
  name     = var.name
  location = var.region
}

# Network

resource "azurerm_virtual_network" "this" {
  name                = var.name
  location            = azurerm_resource_group.this.location
  resource_group_name = azurerm_resource_group.this.name
  address_space       = [var.cidr]
}

resource "azurerm_subnet" "database" {
  name                 = "database"
  resource_group_name  = azurerm_resource_group.this.name
  virtual_network_name = azurerm_virtual_network.this.name
  address_prefixes     = [cidrsubnet(var.cidr, 4, 0)]

  delegation {
    name = "postgres"
    service_delegation {
      name    = "Microsoft.DBforPostgreSQL/flexibleServers"
      actions = ["Microsoft.Network/virtualNetworks/subnets/join/action"]
    }
  }
}

resource "azurerm_subnet" "apps" {
  name                 = "apps"
  resource_group_name  = azurerm_resource_group.this.name
  virtual_network_name = azurerm_virtual_network.this.name
  address_prefixes     = [cidrsubnet(var.cidr, 3, 1)]

  delegation {
    name = "apps"
    service_delegation {
      name    = "Microsoft.App/environments"
      actions = ["Microsoft.Network/virtualNetworks/subnets/join/action"]
    }
  }
}

resource "azurerm_private_dns_zone" "database" {
  name                = "${var.name}.private.postgres.database.azure.com"
  resource_group_name = azurerm_resource_group.this.name
}

resource "azurerm_private_dns_zone_virtual_network_link" "database" {
  name                  = "database"
  resource_group_name   = azurerm_resource_group.this.name
  private_dns_zone_name = azurerm_private_dns_zone.database.name
  virtual_network_id    = azurerm_virtual_network.this.id
}

# Database: no password sign-in for people (Entra only); the service's role is made by README.md's statements.

resource "azurerm_postgresql_flexible_server" "this" {
  name                          = var.name
  resource_group_name           = azurerm_resource_group.this.name
  location                      = azurerm_resource_group.this.location
  version                       = "17"
  sku_name                      = var.database_sku
  storage_mb                    = 65536
  delegated_subnet_id           = azurerm_subnet.database.id
  private_dns_zone_id           = azurerm_private_dns_zone.database.id
  public_network_access_enabled = false
  backup_retention_days         = 14

  authentication {
    active_directory_auth_enabled = true
    password_auth_enabled         = true # for the service's own role
    tenant_id                     = data.azurerm_client_config.me.tenant_id
  }

  administrator_login               = "administrator_"
  administrator_password_wo         = ephemeral.azurerm_key_vault_secret.administrator.value
  administrator_password_wo_version = 1

  high_availability {
    mode = "ZoneRedundant"
  }

  lifecycle {
    ignore_changes = [zone, high_availability[0].standby_availability_zone]
  }

  depends_on = [azurerm_private_dns_zone_virtual_network_link.database]
}

resource "azurerm_postgresql_flexible_server_configuration" "tls" {
  server_id = azurerm_postgresql_flexible_server.this.id
  name      = "require_secure_transport"
  value     = "on"
}

resource "azurerm_postgresql_flexible_server_configuration" "extensions" {
  server_id = azurerm_postgresql_flexible_server.this.id
  name      = "azure.extensions"
  value     = "VECTOR"
}

resource "azurerm_postgresql_flexible_server_database" "this" {
  name      = "twofold"
  server_id = azurerm_postgresql_flexible_server.this.id
  charset   = "UTF8"
  collation = "C"
}

# Secrets live in a vault that exists before; read while applying, never kept in the state.

ephemeral "azurerm_key_vault_secret" "administrator" {
  name         = "${var.name}-administrator"
  key_vault_id = var.key_vault_id
}

resource "azurerm_user_assigned_identity" "this" {
  name                = var.name
  location            = azurerm_resource_group.this.location
  resource_group_name = azurerm_resource_group.this.name
}

resource "azurerm_role_assignment" "secrets" {
  for_each             = toset(["store", "keys"])
  scope                = "${var.key_vault_id}/secrets/${var.name}-${each.key}"
  role_definition_name = "Key Vault Secrets User"
  principal_id         = azurerm_user_assigned_identity.this.principal_id
}

resource "azurerm_role_assignment" "image" {
  scope                = var.registry_id
  role_definition_name = "AcrPull"
  principal_id         = azurerm_user_assigned_identity.this.principal_id
}

# Service

resource "azurerm_log_analytics_workspace" "this" {
  name                = var.name
  location            = azurerm_resource_group.this.location
  resource_group_name = azurerm_resource_group.this.name
  retention_in_days   = 30
}

resource "azurerm_container_app_environment" "this" {
  name                           = var.name
  location                       = azurerm_resource_group.this.location
  resource_group_name            = azurerm_resource_group.this.name
  log_analytics_workspace_id     = azurerm_log_analytics_workspace.this.id
  infrastructure_subnet_id       = azurerm_subnet.apps.id
  internal_load_balancer_enabled = true

  workload_profile {
    name                  = "Consumption"
    workload_profile_type = "Consumption"
  }
}

resource "azurerm_container_app" "this" {
  name                         = var.name
  resource_group_name          = azurerm_resource_group.this.name
  container_app_environment_id = azurerm_container_app_environment.this.id
  revision_mode                = "Single"

  identity {
    type         = "UserAssigned"
    identity_ids = [azurerm_user_assigned_identity.this.id]
  }

  registry {
    server   = var.registry_server
    identity = azurerm_user_assigned_identity.this.id
  }

  dynamic "secret" {
    for_each = toset(["store", "keys"])
    content {
      name                = secret.key
      identity            = azurerm_user_assigned_identity.this.id
      key_vault_secret_id = "${var.key_vault_uri}secrets/${var.name}-${secret.key}"
    }
  }

  ingress {
    external_enabled           = true # outside this environment, which is inside the network
    target_port                = 8420
    allow_insecure_connections = false

    traffic_weight {
      latest_revision = true
      percentage      = 100
    }
  }

  template {
    min_replicas = 1
    max_replicas = var.copies

    container {
      name   = "server"
      image  = var.image
      cpu    = 2
      memory = "4Gi"

      env {
        name        = "TWOFOLD_STORE"
        secret_name = "store"
      }

      env {
        name        = "TWOFOLD_KEYS_JSON"
        secret_name = "keys"
      }

      liveness_probe {
        transport = "HTTP"
        port      = 8420
        path      = "/health"
      }
    }
  }

  depends_on = [azurerm_role_assignment.secrets, azurerm_role_assignment.image]
}

output "address" { value = "https://${azurerm_container_app.this.ingress[0].fqdn}" }
output "database" { value = azurerm_postgresql_flexible_server.this.fqdn }
