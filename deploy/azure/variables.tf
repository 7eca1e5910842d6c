variable "subscription" { type = string }

variable "region" {
  type    = string
  default = "germanywestcentral"
}

variable "name" {
  type    = string
  default = "twofold"
}

variable "image" {
  type        = string
  description = "The container image, by digest."
}

variable "registry_id" { type = string }
variable "registry_server" { type = string }

variable "key_vault_id" {
  type        = string
  description = "A vault (with role-based access) that holds NAME-administrator, NAME-store and NAME-keys."
}

variable "key_vault_uri" { type = string }

variable "cidr" {
  type    = string
  default = "10.42.0.0/20"
}

variable "copies" {
  type    = number
  default = 4
}

variable "database_sku" {
  type    = string
  default = "GP_Standard_D2ds_v5"
}
